"""The items that wait in this worker, by lane."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from jobs.calls.lanes import lane_parts
from workers.scheduler.entries import Entry


class ItemLanes:
    """First in, first out, by lane. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Entry]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def put(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            lane = self._lanes.get(entry.lane)
            if lane is None:
                lane = self._lanes[entry.lane] = deque()
            lane.append(entry)

    def waiting(self) -> dict[str, tuple[int, float]]:
        """By lane: how many items, and when the oldest arrived."""
        return {name: (len(lane), lane[0].arrived_s) for name, lane in self._lanes.items()}

    def take(self, lane: str, rows: int, max_units: int = 0) -> list[Entry]:
        """The oldest of a lane: up to `rows`, and up to `max_units` of size in all (0: no
        bound); at least one, where there is any."""
        waiting = self._lanes.get(lane, deque())
        taken: list[Entry] = []
        units = 0
        while waiting and len(taken) < rows:
            units += waiting[0].size
            if max_units and units > max_units and taken:
                break
            taken.append(waiting.popleft())
        if not waiting:
            self._lanes.pop(lane, None)
        return taken

    def take_fill(self, lane: str, rows: int) -> list[Entry]:
        """Items that may ride with calls of `lane`: of the same batch key, and no longer."""
        params, bucket = lane_parts(lane)
        taken = self.take(lane, rows)
        for name in list(self._lanes):
            if len(taken) == rows:
                break
            other_params, other_bucket = lane_parts(name)
            if other_params == params and other_bucket <= bucket:
                taken += self.take(name, rows - len(taken))
        return taken

    def drop(self, owner: Any) -> int:
        """Removes what belongs to `owner`; returns how many entries that were."""
        before = len(self)
        for name, lane in list(self._lanes.items()):
            kept = deque(entry for entry in lane if entry.owner is not owner)
            if kept:
                self._lanes[name] = kept
            else:
                del self._lanes[name]
        return before - len(self)
