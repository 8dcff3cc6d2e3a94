"""Deaths of one worker while it loaded a model: after a few of them the model is left out, so that
the others are served."""

from collections.abc import Iterable

from jobs import clock
from jobs.models.model import Model
from workers.device.monitoring.load_history import LoadHistory

MOST_DEATHS = 3
"""Deaths by loads of a model, within an hour, after which a worker leaves it out."""

_IF_BUSY = 3  # times as many, where an item may have been the cause
_COUNTED_FOR_S = 3600.0


class LoadDeaths:
    """Deaths by model, over the incarnations of one worker."""

    def __init__(self) -> None:
        self._counted: dict[Model, list[tuple[float, int]]] = {}  # monotonic, weight
        self._left_out: dict[Model, str] = {}

    def count(self, model: Model, how: str, *, busy: bool = False) -> bool:
        """Counts a death; returns True where the model is left out from now on. how: "crashed" or
        "hung"; busy: items of other models ran, and may have been the cause."""
        now_s = clock.monotonic()
        times = [one for one in self._counted.get(model, ()) if one[0] > now_s - _COUNTED_FOR_S]
        self._counted[model] = times = [*times, (now_s, 1 if busy else _IF_BUSY)]
        if sum(weight for _, weight in times) < MOST_DEATHS * _IF_BUSY:
            return False
        self._left_out[model] = (
            f"its worker {how} {len(times)} times while it loaded this model, and leaves it out: "
            "mend it, then drain and resume the worker"
        )
        return True

    def history(self, models: Iterable[Model]) -> LoadHistory:
        """Returns what the next worker is told; models: those that are declared now. An entry that
        was changed begins anew."""
        declared = set(models)
        left_out = {m.key: why for m, why in self._left_out.items() if m in declared}
        late = [m.key for m in self._counted if m in declared and m.key not in left_out]
        return LoadHistory(tuple(late), left_out)

    def forget(self) -> None:
        """Begins anew, after an orderly end of the worker."""
        self._counted.clear()
        self._left_out.clear()
