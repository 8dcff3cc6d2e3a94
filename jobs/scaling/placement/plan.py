"""Plans of a placement: from models, kinds and what there is to devices, and what changes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from jobs.scaling.placement import greedy
from jobs.scaling.placement.board import ROUNDING, Board, Device
from jobs.scaling.placement.demand import Demand, Kind
from jobs.scaling.placement.greedy import Noise
from jobs.scaling.placement.relocate import improve

MOST_USED = 1 / 1.5
"""Load that devices are planned for: half as much again just fits."""
_NOTHING = 1e-6  # entries a second, which rounding leaves
_ROUNDS = 2000  # of relocation


@dataclass(frozen=True, slots=True)
class Placed:
    """One device of a plan."""

    kind: str
    load: dict[str, float]  #: share of the device by model, name@version
    since_s: dict[str, float]  #: Unix time since when each model has been there

    @property
    def models(self) -> tuple[str, ...]:
        """Models on it, in order."""
        return tuple(sorted(self.load))


@dataclass(frozen=True, slots=True)
class Plan:
    """Devices, and the models on each."""

    devices: Sequence[Placed]
    price: float  #: of all, an hour
    unplaced: dict[str, float]  #: entries a second that no device may take, by model

    @property
    def counts(self) -> dict[str, int]:
        """Devices by kind."""
        return dict(sorted(Counter(device.kind for device in self.devices).items()))

    @property
    def pools(self) -> list[tuple[str, tuple[str, ...], int]]:
        """Kind, models and replicas of each pool: devices that are alike."""
        alike = Counter((device.kind, device.models) for device in self.devices)
        return [(kind, models, count) for (kind, models), count in sorted(alike.items())]


def place(
    demands: Sequence[Demand], kinds: Sequence[Kind], before: Sequence[Placed] = (), *,
    at_s: float = 0.0, min_stay_s: float = 0.0, most_used: float = MOST_USED,
    rounds: int = _ROUNDS,
) -> Plan:  # fmt: skip
    """Returns a placement of models that costs little.

    before: devices that there are. Of them only what the demand asks for, or what saves money, is
    changed, and a model that came less than min_stay_s ago is not moved. at_s: Unix time.
    """
    board = Board({demand.model: demand for demand in demands}, kinds, most_used, at_s)
    greedy.fill(board, _restore(board, before), Noise(Random(0), 0.0))
    _drop_idle(board, min_stay_s)
    board = improve(board, rounds, min_stay_s, strict=bool(before))
    return _as_plan(board)


def _restore(board: Board, before: Iterable[Placed]) -> dict[str, float]:
    """Puts the devices that there are on the board, with the load that they had as far as it is
    asked for, and gives their copies what else they have room for. Models that are no longer asked
    for are left out. Returns what is left to place, by model."""
    kinds = {kind.name: kind for kind in board.kinds}
    copies: dict[str, list[tuple[Device, float]]] = {model: [] for model in board.demands}
    for placed in before:
        if placed.kind not in kinds:
            continue
        device = board.open(kinds[placed.kind])
        for model, load in placed.load.items():
            demand = board.demands.get(model)
            if demand and demand.fits(device.kind) and device.holds(demand):
                device.add(demand, 0.0, placed.since_s[model])
                copies[model].append((device, load * demand.rates[placed.kind]))
    left = {model: demand.per_s for model, demand in board.demands.items()}
    for model, its in copies.items():
        had = sum(per_s for _, per_s in its)
        share = min(1.0, left[model] / had) if had else 0.0
        left[model] -= _give(board, board.demands[model], [(d, share * n) for d, n in its])
    for model in sorted(copies, key=lambda it: len(copies[it])):
        more = [(device, left[model]) for device, _ in copies[model]]
        left[model] -= _give(board, board.demands[model], more, left[model])
    return {model: per_s for model, per_s in left.items() if per_s > _NOTHING}


def _give(
    board: Board, demand: Demand, wanted: Iterable[tuple[Device, float]], most: float = inf
) -> float:
    """Gives devices the entries that they are to do, as far as they have room. Returns their
    sum."""
    given = 0.0
    for device, per_s in wanted:
        taken = min(per_s, most - given, board.room(device, demand))
        board.give(device, demand, taken)
        given += taken
    return given


def _drop_idle(board: Board, min_stay_s: float) -> None:
    """Takes away copies that have no load and may go, and devices without any copy."""
    for device in board.devices:
        for model, load in list(device.load.items()):
            if load <= ROUNDING and board.at_s - device.since_s[model] >= min_stay_s:
                device.remove(board.demands[model])
    board.devices = [device for device in board.devices if device.load]


def _as_plan(board: Board) -> Plan:
    devices = [
        Placed(device.kind.name, dict(device.load), dict(device.since_s))
        for device in board.devices
    ]
    order = sorted(devices, key=lambda it: (it.kind, it.models))
    return Plan(order, board.price, {m: rest for m, rest in board.unplaced.items() if rest})
