"""The items that wait in this worker, by lane."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from jobs.calls.lanes import lane_parts
from workers.scheduler.entries import Entry


@dataclass(slots=True)
class _Lane:
    entries: deque[Entry] = field(default_factory=deque)
    units: int = 0

    def put(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.units += entry.size

    def pop(self) -> Entry:
        entry = self.entries.popleft()
        self.units -= entry.size
        return entry


@dataclass(frozen=True, slots=True)
class ItemsWaiting:
    """One lane: how many items, their sizes together, and when the oldest arrived."""

    rows: int
    units: int
    since_s: float


class ItemLanes:
    """First in, first out, by lane. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}

    def __len__(self) -> int:
        return sum(len(lane.entries) for lane in self._lanes.values())

    def put(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            lane = self._lanes.get(entry.lane)
            if lane is None:
                lane = self._lanes[entry.lane] = _Lane()
            lane.put(entry)

    def waiting(self) -> dict[str, ItemsWaiting]:
        return {
            name: ItemsWaiting(len(lane.entries), lane.units, lane.entries[0].arrived_s)
            for name, lane in self._lanes.items()
        }

    def take(self, name: str, rows: int, max_units: int = 0, least: int = 1) -> list[Entry]:
        """The oldest of a lane: up to `rows`, and up to `max_units` of size in all (0: no
        bound), but at least `least`, where there are so many."""
        lane = self._lanes.get(name, _Lane())
        taken: list[Entry] = []
        units = 0
        while lane.entries and len(taken) < rows:
            units += lane.entries[0].size
            if max_units and units > max_units and len(taken) >= least:
                break
            taken.append(lane.pop())
        if not lane.entries:
            self._lanes.pop(name, None)
        return taken

    def take_fill(self, name: str, rows: int, max_units: int = 0) -> list[Entry]:
        """Items that may ride with calls of a lane: of the same batch key, and of no longer
        bucket; up to `rows`, and up to `max_units` of size in all (0: no bound)."""
        params, bucket = lane_parts(name)
        taken = self.take(name, rows, max_units, least=0)
        for other in list(self._lanes):
            left = max_units - sum(entry.size for entry in taken)
            if len(taken) == rows or (max_units and left <= 0):
                break
            other_params, other_bucket = lane_parts(other)
            if other != name and other_params == params and other_bucket <= bucket:
                taken += self.take(other, rows - len(taken), max_units and left, least=0)
        return taken

    def drop(self, owner: Any) -> int:
        """Removes what belongs to `owner`; returns how many entries that were."""
        before = len(self)
        for name, lane in list(self._lanes.items()):
            kept = [entry for entry in lane.entries if entry.owner is not owner]
            del self._lanes[name]
            if kept:
                self._lanes[name] = _Lane(deque(kept), sum(entry.size for entry in kept))
        return before - len(self)
