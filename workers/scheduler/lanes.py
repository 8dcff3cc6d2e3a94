"""The items that wait in this worker, by lane."""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jobs.calls.lanes import lane_parts
from workers.scheduler.entries import Entry, Place


@dataclass(slots=True)
class _Line:
    """One tenant's items in one lane: by their place, those of one place first in, first out."""

    places: list[Place] = field(default_factory=list)
    at: dict[Place, deque[Entry]] = field(default_factory=dict)

    def put(self, entry: Entry) -> None:
        if entry.place not in self.at:
            insort(self.places, entry.place)
            self.at[entry.place] = deque()
        self.at[entry.place].append(entry)

    def head(self) -> Entry:
        return self.at[self.places[0]][0]

    def pop(self) -> Entry:
        entries = self.at[self.places[0]]
        entry = entries.popleft()
        if not entries:
            del self.at[self.places.pop(0)]
        return entry


@dataclass(slots=True)
class _Lane:
    lines: dict[str, _Line] = field(default_factory=dict)  # by tenant
    rows: int = 0
    units: int = 0

    def put(self, entry: Entry) -> None:
        if entry.tenant not in self.lines:
            self.lines[entry.tenant] = _Line()
        self.lines[entry.tenant].put(entry)
        self.rows += 1
        self.units += entry.size

    def pop(self, tenant: str) -> Entry:
        line = self.lines[tenant]
        entry = line.pop()
        if not line.places:
            del self.lines[tenant]
        self.rows -= 1
        self.units -= entry.size
        return entry

    def since_s(self) -> float:
        queues = (queue for line in self.lines.values() for queue in line.at.values())
        return min(queue[0].arrived_s for queue in queues)

    def entries(self) -> Iterator[Entry]:
        for line in self.lines.values():
            for queue in line.at.values():
                yield from queue


@dataclass(frozen=True, slots=True)
class ItemsWaiting:
    """One lane: how many items, their sizes together, and when the oldest arrived."""

    rows: int
    units: int
    since_s: float


class ItemLanes:
    """In each lane tenants take turns, by start-time fair queueing (Goyal et al. 1996) in rows, or
    in size where the device's time goes by that (sized). Not thread-safe: its owner holds a
    lock."""

    def __init__(self, *, sized: bool = False) -> None:
        self._sized = sized
        self._lanes: dict[str, _Lane] = {}
        self._times: dict[str, float] = {}  # by tenant: the virtual time at which it is next
        self._now = 0.0  # at which the latest started that was taken

    def __len__(self) -> int:
        return sum(lane.rows for lane in self._lanes.values())

    def put(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            lane = self._lanes.get(entry.lane)
            if lane is None:
                lane = self._lanes[entry.lane] = _Lane()
            lane.put(entry)

    def waiting(self) -> dict[str, ItemsWaiting]:
        return {
            name: ItemsWaiting(lane.rows, lane.units, lane.since_s())
            for name, lane in self._lanes.items()
        }

    def take(self, name: str, rows: int, max_units: int = 0, least: int = 1) -> list[Entry]:
        """Those of a lane whose turn it is: up to `rows`, and up to `max_units` of size in all (0:
        no bound), but at least `least`, where there are so many."""
        lane = self._lanes.get(name, _Lane())
        taken: list[Entry] = []
        units = 0
        while lane.rows and len(taken) < rows:
            tenant = self._next(lane)
            units += lane.lines[tenant].head().size
            if max_units and units > max_units and len(taken) >= least:
                break
            taken.append(lane.pop(tenant))
            self._charge(taken[-1])
        self._forget(name, lane)
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
        dropped = 0
        for name, lane in list(self._lanes.items()):
            if any(entry.owner is owner for entry in lane.entries()):  # most have nothing left
                kept = self._lanes[name] = _Lane()
                for entry in lane.entries():
                    if entry.owner is not owner:
                        kept.put(entry)
                dropped += lane.rows - kept.rows
                self._forget(name, kept)
        return dropped

    def _next(self, lane: _Lane) -> str:
        if len(lane.lines) == 1:
            return next(iter(lane.lines))
        return min(lane.lines, key=self._time)

    def _time(self, tenant: str) -> float:
        return max(self._now, self._times.get(tenant, 0.0))

    def _charge(self, entry: Entry) -> None:
        self._now = self._time(entry.tenant)
        cost = max(1, entry.size) if self._sized else 1
        self._times[entry.tenant] = self._now + cost / entry.weight

    def _forget(self, name: str, lane: _Lane) -> None:
        """Nothing of a lane that is empty; nobody's turn once they all are."""
        if not lane.rows:
            self._lanes.pop(name, None)
        if not self._lanes:
            self._times.clear()
            self._now = 0.0
