"""Which models a worker has in memory: a table of states, and who comes and goes next.

    absent    declared, not in memory; loaded once it fits, or when it is asked for
    loading   its room is reserved; it is read in, or is about to be
    warming   measured by launches of its own
    ready     takes calls and items
    draining  takes no more; what is in hand ends or goes back
    failed    couldn't be loaded; tried again with backoff

No engine, no thread, no clock of its own: `residents.py` does what this says.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from jobs.models.model import Model
from jobs.store.queue.workers import ModelState

_NEXT: Mapping[ModelState, tuple[ModelState, ...]] = {
    "absent": ("loading", "failed"),
    "loading": ("warming", "failed", "absent"),
    "warming": ("ready", "failed"),
    "ready": ("draining",),
    "draining": ("absent",),
    "failed": ("loading",),
}
_RESERVED: tuple[ModelState, ...] = ("loading", "warming", "ready")
_IN_MEMORY: tuple[ModelState, ...] = ("warming", "ready", "draining")

REMOVED_STAYS_S = 5.0
"""A version that was removed stays at least so long: api processes hear of it a little later."""

_BUSY_STAYS = 10
"""Minimum stays after which a model goes although it has something in hand: none waits for ever."""

_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0


@dataclass(slots=True, eq=False)
class Resident:
    """One model. eager: it comes as soon as it fits, since it has not been here yet; busy: it has
    something in hand; removed_s: since when the models file has it no more."""

    model: Model
    state: ModelState = "absent"
    memory_mb: float = 0.0
    eager: bool = True
    busy: bool = False
    ready_s: float = -inf
    used_s: float = -inf
    removed_s: float | None = None
    load_s: float = 0.0
    failures: int = 0
    retry_s: float = -inf
    error: str = ""

    def becomes(self, state: ModelState) -> None:
        assert state in _NEXT[self.state], f"{self.model.key}: {self.state} to {state}"
        self.state = state


@dataclass(slots=True)
class Residency:
    """The models of one worker, in the order they were declared. budget_mb: 0 for no bound."""

    budget_mb: float = 0.0
    min_stay_s: float = 30.0
    _table: dict[str, Resident] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._table.values())

    def among(self, *states: ModelState) -> list[Resident]:
        return [resident for resident in self if resident.state in states]

    def declare(self, now_s: float, models: Iterable[Model]) -> None:
        """What the models file has now. An entry that came back as another one waits until the one
        that is here has left."""
        declared = {model.key: model for model in models}
        for key, resident in self._table.items():
            if declared.get(key) == resident.model:
                resident.removed_s = None
            elif resident.removed_s is None:
                resident.removed_s = now_s
        for key, model in declared.items():
            if key not in self._table:
                self._table[key] = resident = Resident(model, memory_mb=float(model.memory_mb))
                if self._too_large(resident):
                    self._refuse(resident)

    def reserve(self, now_s: float) -> None:
        """Who has not been here yet comes, in the order of declaration, while there is room."""
        for resident in self._candidates(now_s):
            declared = resident.removed_s is None
            if declared and resident.eager and resident.memory_mb <= self._free_mb():
                resident.becomes("loading")

    def invite(
        self, now_s: float, wanted: Collection[str]
    ) -> Iterator[tuple[Resident, list[Resident]]]:
        """Models that are asked for, with those that would have to leave for each."""
        for resident in self._candidates(now_s):
            if resident.model.key in wanted:
                leaving = self._leaving(now_s, resident.memory_mb)
                if leaving is not None:
                    yield resident, leaving

    def next_load(self) -> Resident | None:
        """The first whose room is not only reserved but free."""
        used_mb = sum(resident.memory_mb for resident in self.among(*_IN_MEMORY))
        for resident in self.among("loading"):
            if not self.budget_mb or used_mb + resident.memory_mb <= self.budget_mb:
                return resident
        return None

    def weigh(self, resident: Resident, memory_mb: float) -> bool:
        """It is in memory and turns out to take so much: whether it may stay."""
        resident.memory_mb = float(memory_mb)
        if self._too_large(resident):
            self._refuse(resident)
        elif self._free_mb() < 0:
            resident.becomes("absent")
            resident.eager = False
        return resident.state == "loading"

    def settle(self, now_s: float, resident: Resident) -> None:
        """It is warm."""
        resident.becomes("ready")
        resident.ready_s = resident.used_s = now_s
        resident.eager, resident.failures, resident.error = False, 0, ""

    def fail(self, now_s: float, resident: Resident, error: str) -> None:
        """It couldn't be loaded."""
        resident.becomes("failed")
        pause_s = min(_FIRST_RETRY_S * 2**resident.failures, _LONGEST_RETRY_S)
        resident.failures += 1
        resident.retry_s, resident.error = now_s + pause_s, error

    def left(self, resident: Resident) -> None:
        """It is out of memory. Who had to make room comes back when it is asked for."""
        resident.becomes("absent")
        resident.eager = not self.budget_mb

    def removed(self, now_s: float) -> list[Resident]:
        """Those that may go once their work is done, because nobody can ask for them any more."""
        return [
            resident
            for resident in self.among("ready", "absent", "failed")
            if resident.removed_s is not None and now_s >= resident.removed_s + REMOVED_STAYS_S
        ]

    def forget(self, resident: Resident) -> None:
        """A removed one has gone."""
        del self._table[resident.model.key]

    def settled(self) -> bool:
        """Whether none is on its way in."""
        return not self.among("loading", "warming")

    def _candidates(self, now_s: float) -> list[Resident]:
        return [r for r in self.among("absent", "failed") if now_s >= r.retry_s]

    def _free_mb(self) -> float:
        """Of the budget, once those that drain have left."""
        if not self.budget_mb:
            return inf
        return self.budget_mb - sum(resident.memory_mb for resident in self.among(*_RESERVED))

    def _leaving(self, now_s: float, memory_mb: float) -> list[Resident] | None:
        """The least recently used that make room for so much; None: they can't yet."""
        missing_mb, leaving = memory_mb - self._free_mb(), list[Resident]()
        for resident in sorted(self.among("ready"), key=lambda r: (r.busy, r.used_s)):
            if missing_mb <= 0:
                break
            if resident.memory_mb > 0 and self._has_stayed(now_s, resident):
                leaving.append(resident)
                missing_mb -= resident.memory_mb
        return leaving if missing_mb <= 0 else None

    def _has_stayed(self, now_s: float, resident: Resident) -> bool:
        stay_s = self.min_stay_s * (_BUSY_STAYS if resident.busy else 1)
        return now_s >= resident.ready_s + stay_s

    def _too_large(self, resident: Resident) -> bool:
        return 0 < self.budget_mb < resident.memory_mb

    def _refuse(self, resident: Resident) -> None:
        resident.becomes("failed")
        resident.retry_s = inf
        resident.error = (
            f"it takes {resident.memory_mb:g} MiB, more than MILLRACE_MEMORY_MB "
            f"({self.budget_mb:g}) allows"
        )
