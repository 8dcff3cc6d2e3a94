"""Which events count: those that tell something of their own.

A caller fails again for the reason it failed before, calls of a launch fail together, and calls
that generate share the delays of the steps they were in. So an event of a kind counts once a
launch, not where one of its callers had one before, and not for a call that was there already when
the last one was counted. The events that are left fall on either lane alike, while both versions
are.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from math import inf
from zlib import crc32

from jobs.rollouts.records import LaunchRecord

MOST_CALLERS = 20_000
"""Callers of a rollout that are followed at a time."""

_HASHES = 1 << 32


class IndependentEvents:
    """Events by kind, counted so far."""

    def __init__(self) -> None:
        self._callers = defaultdict[str, set[str]](set)
        self._at_s = defaultdict[str, float](lambda: -inf)  # of the last one

    def is_new(self, kind: str, records: Sequence[LaunchRecord]) -> bool:
        """Returns True for an event that counts, which it does from then on. records: those of one
        launch that have it."""
        callers, found = self._callers[kind], {one.unit for one in records if one.unit}
        if not callers.isdisjoint(found) or was_there(records[0], self._at_s[kind]):
            return False
        callers |= found
        self._at_s[kind] = records[0].at_s
        return True

    def keep(self, callers: Collection[str]) -> None:
        """Forgets all other callers."""
        for known in self._callers.values():
            known.intersection_update(callers)


def was_there(record: LaunchRecord, at_s: float) -> bool:
    """Returns True for a call that generates and had come by then."""
    return record.lasted_ms > 0 and record.at_s - record.lasted_ms / 1000 < at_s


class CallerSample:
    """Callers that are followed: all of them; of very many a half, a quarter and so on, chosen by
    a hash of their name, so that memory is bounded and no lane is preferred."""

    def __init__(self) -> None:
        self.halvings = 0

    def has(self, caller: str) -> bool:
        """Returns True for a caller that is followed, and where callers aren't sticky ("")."""
        return not self.halvings or not caller or crc32(caller.encode()) < _HASHES >> self.halvings
