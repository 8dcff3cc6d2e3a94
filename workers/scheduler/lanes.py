"""Items that wait in this worker, by lane."""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.calls.lanes import lane_parts
from workers.scheduler.entries import Entry, Place


@dataclass(slots=True)
class _Line:
    """Items of one tenant in one lane: a queue for each slice, in the order of their places."""

    queues: list[tuple[Place, int, deque[Entry]]] = field(default_factory=list)
    of: dict[Any, deque[Entry]] = field(default_factory=dict)  # by owner

    def put(self, entry: Entry, number: int) -> None:
        """Adds an item; number grows, so that among equal places the first to come goes first."""
        queue = self.of.get(entry.owner)
        if queue is None:
            queue = self.of[entry.owner] = deque()
            insort(self.queues, (entry.place, number, queue))
        queue.append(entry)

    def head(self) -> Entry:
        """Returns the next item."""
        return self.queues[0][2][0]

    def pop(self) -> Entry:
        """Removes and returns the next item."""
        queue = self.queues[0][2]
        entry = queue.popleft()
        if not queue:
            del self.queues[0], self.of[entry.owner]
        return entry

    def pop_run(self, rows: int) -> Sequence[Entry]:
        """Removes and returns the next items of one slice, up to `rows`."""
        queue = self.queues[0][2]
        entries = [queue.popleft() for _ in range(min(rows, len(queue)))]
        if not queue:
            del self.queues[0], self.of[entries[0].owner]
        return entries

    def drop(self, owner: Any) -> Sequence[Entry]:
        """Removes and returns the items of an owner."""
        dropped = self.of.pop(owner, None)
        if dropped:  # most slices have nothing left when they are dropped
            self.queues = [queue for queue in self.queues if queue[2] is not dropped]
        return dropped or ()


@dataclass(slots=True)
class _Lane:
    lines: dict[str, _Line] = field(default_factory=dict)  # by tenant
    rows: int = 0
    came: int = 0  # number of items that ever came
    units: int = 0

    def put(self, entry: Entry) -> None:
        """Adds an item."""
        line = self.lines.get(entry.tenant)
        if line is None:
            line = self.lines[entry.tenant] = _Line()
        self.came += 1
        line.put(entry, self.came)
        self.rows += 1
        self.units += entry.size

    def pop(self, tenant: str) -> Entry:
        """Removes and returns the next item of a tenant."""
        line = self.lines[tenant]
        entry = line.pop()
        if not line.queues:
            del self.lines[tenant]
        self.rows -= 1
        self.units -= entry.size
        return entry

    def pop_run(self, rows: int) -> Sequence[Entry]:
        """Removes and returns the next items of the only tenant's slice, up to `rows`."""
        [(tenant, line)] = self.lines.items()
        entries = line.pop_run(rows)
        if not line.queues:
            del self.lines[tenant]
        self.rows -= len(entries)
        self.units -= sum([entry.size for entry in entries])
        return entries

    def drop(self, owner: Any) -> int:
        """Removes the items of an owner; returns how many."""
        dropped = [entry for line in self.lines.values() for entry in line.drop(owner)]
        self.lines = {tenant: line for tenant, line in self.lines.items() if line.queues}
        self.rows -= len(dropped)
        self.units -= sum(entry.size for entry in dropped)
        return len(dropped)

    def since_s(self) -> float:
        """Returns when the oldest item arrived, s."""
        queues = (queue for line in self.lines.values() for queue in line.of.values())
        return min(queue[0].arrived_s for queue in queues)


@dataclass(frozen=True, slots=True)
class ItemsWaiting:
    """Items of one lane."""

    rows: int
    units: int  #: sum of their sizes
    since_s: float  #: when the oldest arrived, monotonic
    turn: float = 0.0  #: least virtual time of their tenants; the lane with the least goes first


class ItemLanes:
    """Items by lane; in each lane tenants take turns.

    The order is start-time fair queueing (Goyal et al. 1996) in rows, or in size if `sized` (where
    the device's time goes by that). If `shapes`, no launch mixes buckets. Not thread-safe: its
    owner holds a lock.
    """

    def __init__(self, *, sized: bool = False, shapes: bool = False) -> None:
        self._sized, self._shapes = sized, shapes
        self._lanes: dict[str, _Lane] = {}
        self._times: dict[str, float] = {}  # virtual time of each tenant's next turn
        self._now = 0.0  # virtual time of the latest item taken

    def __len__(self) -> int:
        return sum(lane.rows for lane in self._lanes.values())

    def put(self, entries: Iterable[Entry]) -> None:
        """Adds items."""
        for entry in entries:
            lane = self._lanes.get(entry.lane)
            if lane is None:
                lane = self._lanes[entry.lane] = _Lane()
            lane.put(entry)

    def waiting(self) -> dict[str, ItemsWaiting]:
        """Returns what waits in each lane."""
        return {
            name: ItemsWaiting(lane.rows, lane.units, lane.since_s(), self._turn(lane))
            for name, lane in self._lanes.items()
        }

    def take(self, name: str, rows: int, max_units: int = 0, least: int = 1) -> list[Entry]:
        """Takes the items of a lane whose turn it is: up to `rows`, and up to `max_units` of size
        in all (0: no bound), but at least `least` where there are that many."""
        lane = self._lanes.get(name, _Lane())
        taken: list[Entry] = []
        units = 0
        while lane.rows and len(taken) < rows:
            if not max_units and len(lane.lines) == 1:  # no item needs a look of its own
                taken += self._take_run(lane, rows - len(taken))
                continue
            tenant = self._next(lane)
            units += lane.lines[tenant].head().size
            if max_units and units > max_units and len(taken) >= least:
                break
            taken.append(lane.pop(tenant))
            self._charge(taken[-1])
        self._forget(name, lane)
        return taken

    def take_fill(self, name: str, rows: int, max_units: int = 0) -> list[Entry]:
        """Takes items that may join calls of a lane: same batch key, no longer bucket (if `shapes`,
        the same); up to `rows`, and up to `max_units` of size in all (0: no bound)."""
        params, bucket = lane_parts(name)
        taken = self.take(name, rows, max_units, least=0)
        for other in list(self._lanes):
            left = max_units - sum(entry.size for entry in taken)
            if len(taken) == rows or (max_units and left <= 0):
                break
            other_params, other_bucket = lane_parts(other)
            fits = other_bucket == bucket if self._shapes else other_bucket <= bucket
            if other != name and other_params == params and fits:
                taken += self.take(other, rows - len(taken), max_units and left, least=0)
        return taken

    def drop(self, owner: Any) -> int:
        """Removes the items of an owner; returns how many."""
        dropped = 0
        for name, lane in list(self._lanes.items()):
            dropped += lane.drop(owner)
            self._forget(name, lane)
        return dropped

    def _take_run(self, lane: _Lane, rows: int) -> Sequence[Entry]:
        """Takes items of one slice of the only tenant, and charges them, which have one weight."""
        entries = lane.pop_run(rows)
        tenant, weight = entries[0].tenant, entries[0].weight
        *costs, last = [max(1, entry.size) if self._sized else 1 for entry in entries]
        self._now = self._time(tenant) + sum(costs) / weight
        self._times[tenant] = self._now + last / weight
        return entries

    def _next(self, lane: _Lane) -> str:
        if len(lane.lines) == 1:
            return next(iter(lane.lines))
        return min(lane.lines, key=self._time)

    def _turn(self, lane: _Lane) -> float:
        return min(map(self._time, lane.lines)) if len(self._lanes) > 1 else 0.0

    def _time(self, tenant: str) -> float:
        return max(self._now, self._times.get(tenant, 0.0))

    def _charge(self, entry: Entry) -> None:
        self._now = self._time(entry.tenant)
        cost = max(1, entry.size) if self._sized else 1
        self._times[entry.tenant] = self._now + cost / entry.weight

    def _forget(self, name: str, lane: _Lane) -> None:
        """Removes an empty lane, and all virtual times once every lane is empty."""
        if not lane.rows:
            self._lanes.pop(name, None)
        if not self._lanes:
            self._times.clear()
            self._now = 0.0
