"""Slots of adapters: which one holds which, and who leaves. No thread, no clock, no matrices."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from jobs.models.adapters import Adapter

_STAY = 5.0  # times the time that it took to load: loading takes a sixth of the time at most
_LEAST_STAY_S = 0.02


@dataclass(slots=True, eq=False)
class Slot:
    """Place of one adapter. Times are monotonic, s."""

    index: int
    adapter: Adapter | None = None
    ready: bool = False  #: its matrices are there
    closing: bool = False  #: another one waits for the place: nobody new gets this one
    since_s: float = -inf  #: when it was loaded
    used_s: float = -inf  #: when it was last asked for
    load_s: float = 0.0  #: time that loading took
    users: dict[Any, None] = field(default_factory=dict)  #: in the order in which they came

    def has_stayed(self, now_s: float) -> bool:
        """Returns True once it may be evicted."""
        return now_s >= self.since_s + max(_LEAST_STAY_S, _STAY * self.load_s)

    def clear(self) -> None:
        """Empties it."""
        self.adapter, self.ready, self.closing = None, False, False
        self.users.clear()


class Slots:
    """Slots of one model in one worker."""

    def __init__(self, count: int) -> None:
        self._slots = [Slot(index) for index in range(count)]
        self.evictions = 0  #: that were not counted yet

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    @property
    def used(self) -> int:
        """Slots with an adapter."""
        return sum(slot.adapter is not None for slot in self)

    def find(self, adapter: Adapter) -> Slot | None:
        """Returns the slot of an adapter, loaded or being loaded."""
        identity = adapter.identity
        return next((s for s in self if s.adapter and s.adapter.identity == identity), None)

    def assign(self, adapter: Adapter, now_s: float) -> Slot | None:
        """Gives an adapter a free slot, or that of the least recently used one that nobody uses and
        that has stayed; None where there is none now."""
        slot = next((slot for slot in self if slot.adapter is None), None)
        if slot is None:
            slot = self.oldest(now_s, lambda slot: not slot.users)
            if slot is None:
                return None
            slot.clear()
            self.evictions += 1
        slot.adapter, slot.used_s = adapter, now_s
        return slot

    def oldest(self, now_s: float, suits: Callable[[Slot], bool]) -> Slot | None:
        """Returns the least recently used slot that may be evicted and suits."""
        suiting = [
            slot
            for slot in self
            if slot.ready and slot.adapter and not slot.adapter.pinned
            if slot.has_stayed(now_s) and suits(slot)
        ]
        return min(suiting, key=lambda slot: slot.used_s, default=None)

    def take_evictions(self) -> int:
        """Returns the evictions since the last time."""
        count, self.evictions = self.evictions, 0
        return count

    def loaded(self, slot: Slot, now_s: float, load_s: float) -> None:
        """Marks a slot's adapter as loaded."""
        slot.ready, slot.since_s, slot.load_s = True, now_s, load_s
