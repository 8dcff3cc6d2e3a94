"""Models in a worker's memory: a table of their states, and which is loaded or unloaded next.

    absent    declared, not in memory; loaded once it fits, or when it is requested
    verifying memory is reserved; the signature of its artifact is checked, or is next
    staging   its artifact is fetched and hashed
    loading   memory is reserved; it is being loaded, or is next
    warming   measured by launches of its own
    ready     takes calls and items
    draining  takes no more; what is in flight ends or goes back
    failed    couldn't be loaded; tried again with backoff

No engine, no thread, no clock of its own: `ModelLoader` carries it out.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from jobs.models.model import Model
from jobs.models.registered import Registered
from jobs.models.registry import Registry
from jobs.store.queue.workers import LOADING_STATES, ModelState

_NEXT: Mapping[ModelState, tuple[ModelState, ...]] = {
    "absent": ("verifying", "loading", "failed"),
    "verifying": ("staging", "failed"),
    "staging": ("loading", "failed"),
    "loading": ("warming", "failed", "absent"),
    "warming": ("ready", "failed"),
    "ready": ("draining",),
    "draining": ("absent",),
    "failed": ("verifying", "loading"),
}
_RESERVED: tuple[ModelState, ...] = (*LOADING_STATES, "ready")
_IN_MEMORY: tuple[ModelState, ...] = ("warming", "ready", "draining")

REMOVED_STAYS_S = 5.0
"""A removed version stays at least so long: api processes learn of it a little later."""

_BUSY_STAYS = 10
"""Minimum stays after which a busy model is unloaded as well: no other waits for ever."""

_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0


@dataclass(slots=True, eq=False)
class Resident:
    """One model of a worker. Times are monotonic."""

    model: Model
    state: ModelState = "absent"
    memory_mb: float = 0.0  #: declared or measured, MiB
    eager: bool = True  #: True: loaded as soon as it fits, without a request
    busy: bool = False  #: True while claims are in flight
    ready_s: float = -inf  #: since when it is ready
    used_s: float = -inf  #: when it last launched something
    removed_s: float | None = None  #: since when it is missing from the models file
    load_s: float = 0.0  #: seconds that it took to load
    failures: int = 0  #: failed loads in a row
    retry_s: float = -inf  #: when it may be tried again
    error: str = ""  #: reason of the latest failed load

    def change_state(self, state: ModelState) -> None:
        """Moves to another state, which must be allowed after the present one."""
        assert state in _NEXT[self.state], f"{self.model.key}: {self.state} to {state}"
        self.state = state

    def reserve(self) -> None:
        """Moves to the first state of a load: versions with an artifact are verified first."""
        self.change_state("verifying" if self.model.artifact else "loading")


@dataclass(slots=True)
class Residency:
    """Models of one worker, in the order of their declaration."""

    budget_mb: float = 0.0  #: memory for all of them, MiB; 0: no bound
    min_stay_s: float = 30.0  #: a model isn't unloaded sooner after it became ready
    late: set[str] = field(default_factory=set)  #: loaded last, by name@version
    left_out: dict[str, str] = field(default_factory=dict)  #: not loaded; the reason of each
    held: Collection[str] = ()  #: loaded first, without a request too, by name@version
    kept_warm: Collection[str] = ()  #: versions that idle ones go before, by name@version
    _table: dict[str, Resident] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Resident]:
        return iter(self._table.values())

    def in_state(self, *states: ModelState) -> list[Resident]:
        """Returns the models in any of these states."""
        return [resident for resident in self if resident.state in states]

    def declare(self, now_s: float, models: Iterable[Model]) -> None:
        """Sets the models of the models file. An entry that was changed waits until the model that
        it replaces is unloaded."""
        declared = {model.key: model for model in models}
        for key, resident in self._table.items():
            if (model := declared.get(key)) == resident.model:
                resident.removed_s = None
                if resident.state in ("absent", "failed"):  # its probe may be another one now
                    resident.model = model
            elif resident.removed_s is None:
                resident.removed_s = now_s
        for key, model in declared.items():
            if key not in self._table:
                self._table[key] = resident = Resident(
                    model,
                    memory_mb=float(model.memory_mb),
                    eager=key in self.held or not model.on_demand,
                )
                if self._too_large(resident):
                    self._reject(resident)
                elif reason := self.left_out.pop(key, ""):  # once: a changed entry is tried
                    resident.change_state("failed")
                    resident.retry_s, resident.error = inf, reason

    def reserve(self, now_s: float) -> None:
        """Reserves memory for models that have not been loaded yet, in order, while they fit."""
        candidates = self._candidates(now_s)
        for resident in sorted(candidates, key=lambda r: r.model.key not in self.held):
            declared = resident.removed_s is None
            if declared and resident.eager and resident.memory_mb <= self._free_mb():
                resident.reserve()

    def requested_loads(
        self, now_s: float, requested: Collection[str], more: Collection[str] = ()
    ) -> Iterator[tuple[Resident, list[Resident]]]:
        """Yields requested models that can be loaded, with those to unload for each. more: models
        that other workers have, but too few: nothing that is in use is unloaded for them."""
        for resident in self._candidates(now_s):
            key = resident.model.key
            if key not in requested and key not in more:
                continue
            evicted = self._evictable(now_s, resident.memory_mb)
            if evicted is None or (key in more and any(self._in_use(now_s, r) for r in evicted)):
                continue
            yield resident, evicted

    def next_load(self) -> Resident | None:
        """Returns the first model to load whose memory is not only reserved but free. Those whose
        loads ended workers come after the others."""
        used_mb = sum(resident.memory_mb for resident in self.in_state(*_IN_MEMORY))
        waiting = self.in_state("verifying", "loading")
        for resident in sorted(waiting, key=lambda r: r.model.key in self.late):
            if not self.budget_mb or used_mb + resident.memory_mb <= self.budget_mb:
                return resident
        return None

    def measure(self, resident: Resident, memory_mb: float) -> bool:
        """Sets the memory that a loaded model takes; returns False if it can't stay."""
        resident.memory_mb = float(memory_mb)
        if self._too_large(resident):
            self._reject(resident)
        elif self._free_mb() < 0:
            resident.change_state("absent")
            resident.eager = False
        return resident.state == "loading"

    def mark_ready(self, now_s: float, resident: Resident) -> None:
        """Marks a warm model ready."""
        resident.change_state("ready")
        resident.ready_s = resident.used_s = now_s
        resident.eager, resident.failures, resident.error = False, 0, ""

    def mark_failed(self, now_s: float, resident: Resident, error: str) -> None:
        """Marks a model that couldn't be loaded, to be tried again with backoff."""
        resident.change_state("failed")
        pause_s = min(_FIRST_RETRY_S * 2**resident.failures, _LONGEST_RETRY_S)
        resident.failures += 1
        resident.retry_s, resident.error = now_s + pause_s, error

    def mark_unloaded(self, resident: Resident) -> None:
        """Marks a model that is out of memory. Under a budget it comes back by request only."""
        resident.change_state("absent")
        resident.eager = not self.budget_mb and not resident.model.on_demand

    def removed(self, now_s: float) -> list[Resident]:
        """Returns removed models that no api process can send work to any more."""
        return [
            resident
            for resident in self.in_state("ready", "absent", "failed")
            if resident.removed_s is not None and now_s >= resident.removed_s + REMOVED_STAYS_S
        ]

    def remove(self, resident: Resident) -> None:
        """Removes a model from the table."""
        del self._table[resident.model.key]

    def settled(self) -> bool:
        """Returns True while no model is being loaded."""
        return not self.in_state(*LOADING_STATES)

    def _candidates(self, now_s: float) -> list[Resident]:
        return [r for r in self.in_state("absent", "failed") if now_s >= r.retry_s]

    def _free_mb(self) -> float:
        """Returns the free part of the budget, once draining models are unloaded."""
        if not self.budget_mb:
            return inf
        return self.budget_mb - sum(resident.memory_mb for resident in self.in_state(*_RESERVED))

    def _evictable(self, now_s: float, memory_mb: float) -> list[Resident] | None:
        """Returns the least recently used models that free so much memory, or None."""
        missing_mb, evicted = memory_mb - self._free_mb(), list[Resident]()
        order = sorted(self.in_state("ready"), key=lambda r: (r.busy, self._used_s(now_s, r)))
        for resident in order:
            if missing_mb <= 0:
                break
            if resident.memory_mb > 0 and self._has_stayed(now_s, resident):
                evicted.append(resident)
                missing_mb -= resident.memory_mb
        return evicted if missing_mb <= 0 else None

    def _used_s(self, now_s: float, resident: Resident) -> float:
        """Returns when a model was last used; one that is kept warm counts as used a minimum stay
        ago."""
        kept = resident.model.key in self.kept_warm
        return max(resident.used_s, now_s - self.min_stay_s) if kept else resident.used_s

    def _in_use(self, now_s: float, resident: Resident) -> bool:
        return resident.busy or self._used_s(now_s, resident) > now_s - self.min_stay_s

    def _has_stayed(self, now_s: float, resident: Resident) -> bool:
        stay_s = self.min_stay_s * (_BUSY_STAYS if resident.busy else 1)
        return now_s >= resident.ready_s + stay_s

    def _too_large(self, resident: Resident) -> bool:
        return 0 < self.budget_mb < resident.memory_mb

    def _reject(self, resident: Resident) -> None:
        resident.change_state("failed")
        resident.retry_s = inf
        resident.error = (
            f"it takes {resident.memory_mb:g} MiB, more than MILLRACE_MEMORY_MB "
            f"({self.budget_mb:g}) allows"
        )


class RolledBack:
    """Memory of one worker of the rollouts that were rolled back: each unloads its canary once.
    Times are monotonic."""

    def __init__(self) -> None:
        self._seen_s: dict[str, float] = {}  # by id of the rollout, while the registry tells of it
        self._done: set[str] = set()

    def unneeded(
        self, now_s: float, registered: Registered, models: Registry, table: Residency
    ) -> list[Resident]:
        """Returns the canaries that are to be unloaded: loaded on demand, and named by nothing.

        Each is returned until it is unloaded, but not before api processes know of the rollback.
        """
        self._done &= {id for id, _ in registered.rolled_back}
        self._seen_s = {id: self._seen_s.get(id, now_s) for id, _ in registered.rolled_back}
        by_key = {resident.model.key: resident for resident in table}
        found = list[Resident]()
        for id, key in registered.rolled_back:
            resident = by_key.get(key)
            if id in self._done or (resident and resident.state in LOADING_STATES):
                continue
            if not resident or resident.state != "ready" or _stays(resident, registered, models):
                self._done.add(id)
            elif now_s >= self._seen_s[id] + REMOVED_STAYS_S:
                found.append(resident)
        return found


def _stays(resident: Resident, registered: Registered, models: Registry) -> bool:
    """Returns True for a model that isn't loaded on demand, or that something names; one that was
    removed is unloaded in any case."""
    model = resident.model
    return (
        not model.on_demand
        or resident.removed_s is not None
        or registered.routing.names(model.name, model.version)
        or any(one.degrade.fallback == model.key for one in models)
    )
