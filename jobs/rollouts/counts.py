"""Sums over the launches of one lane."""

from dataclasses import dataclass, field
from math import inf

from jobs.rollouts.independence import was_there
from jobs.rollouts.records import LaunchRecord


@dataclass(slots=True)
class LaneCounts:
    """Sums over one lane."""

    launches: int = 0  #: calls, of a model that generates
    calls: int = 0
    failed: int = 0  #: calls
    empty: int = 0  #: outputs
    truncated: int = 0  #: outputs
    invalid: int = 0  #: outputs
    missed: int = 0  #: calls that the stable version answered instead
    units: set[str] = field(default_factory=set)  #: callers, where they are sticky
    anonymous: int = 0  #: launches of callers that aren't
    last_at_s: float = 0.0  #: time of the last launch

    def add(self, record: LaunchRecord) -> None:
        """Adds a launch, or a caller's part of it."""
        self.launches += record.launches
        self.calls += record.calls
        self.failed += record.failed
        self.empty += record.empty
        self.truncated += record.truncated
        self.invalid += record.invalid
        if record.unit:
            self.units.add(record.unit)
        else:
            self.anonymous += 1
        self.last_at_s = max(self.last_at_s, record.at_s)

    def add_missed(self, record: LaunchRecord) -> None:
        """Adds calls of this lane that the stable version answered instead."""
        self.missed += record.calls
        if record.unit:
            self.units.add(record.unit)


@dataclass(slots=True)
class LostRun:
    """Launches in a row that gave nothing; of calls that generate those that came after each
    other."""

    _launches: int = 0
    _units: set[str] = field(default_factory=set)
    _at_s: float = -inf  # of the last one

    def add(self, record: LaunchRecord) -> None:
        """Adds a launch, or a caller's part of it."""
        if not record.is_lost:
            self._launches = 0
            self._units.clear()
            return
        if was_there(record, self._at_s):
            return
        self._at_s = record.at_s
        self._launches += record.launches
        if record.unit:
            self._units.add(record.unit)

    @property
    def length(self) -> int:
        """Launches; where callers are sticky at most their number: one may send nonsense."""
        return min(self._launches, len(self._units) or self._launches)
