"""Work that a plan serves when other work comes than it was made for: calls go to the least busy
device that has their model."""

from collections.abc import Mapping, Sequence

from jobs.scaling.placement.demand import Demand
from jobs.scaling.placement.plan import Placed

_ROUNDS = 300
_SETTLED = 1e-4  # share of a device; smaller differences aren't evened out


def served(
    devices: Sequence[Placed], demands: Mapping[str, Demand], per_s: Mapping[str, float]
) -> dict[str, float]:
    """Returns the entries a second that devices serve of those that come, by model. All of a device
    may be used."""
    loads = [_Load(placed, demands) for placed in devices]
    copies = {model: [load for load in loads if model in load.by_model] for model in per_s}
    for model, its in copies.items():
        planned = sum(load.by_model[model] * load.rates[model] for load in its)
        for load in its:
            # As planned, or where nothing was planned: the same everywhere.
            part = load.by_model[model] / planned if planned else 1 / len(its) / load.rates[model]
            load.change(model, part * per_s[model] - load.by_model[model])
    for _ in range(_ROUNDS):
        moved = sum(_even_out(model, its) for model, its in copies.items())
        if not moved or all(load.used <= 1 for load in loads):
            break
    return {
        model: min(per_s[model], sum(load.done(model) for load in its))
        for model, its in copies.items()
    }


class _Load:
    """Load of one device."""

    def __init__(self, placed: Placed, demands: Mapping[str, Demand]) -> None:
        self.by_model = {m: load for m, load in placed.load.items() if m in demands}
        self.rates = {model: demands[model].rates[placed.kind] for model in self.by_model}
        self.used = sum(self.by_model.values())

    def change(self, model: str, by: float) -> None:
        """Adds to the load of a model."""
        self.by_model[model] += by
        self.used += by

    def done(self, model: str) -> float:
        """Returns the entries of a model that are served; above 1, all get the same share."""
        return self.by_model[model] / max(1.0, self.used) * self.rates[model]


def _even_out(model: str, copies: Sequence[_Load]) -> bool:
    """Shifts calls of a model from the busiest device to the least busy one. Returns False where
    they are alike."""
    busiest = max((it for it in copies if it.by_model[model] > 0), key=_used, default=None)
    idlest = min(copies, key=_used, default=None)
    if busiest is None or idlest is None or busiest.used - idlest.used < _SETTLED:
        return False
    factor = busiest.rates[model] / idlest.rates[model]
    shifted = min(busiest.by_model[model], (busiest.used - idlest.used) / (1 + factor))
    busiest.change(model, -shifted)
    idlest.change(model, shifted * factor)
    return True


def _used(load: _Load) -> float:
    return load.used
