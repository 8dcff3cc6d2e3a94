"""Looks at lanes by one worker, which sees the calls that its tier is to take."""

from collections.abc import Callable, Mapping

from jobs.calls.lanes import CallLanes, LanesState
from jobs.calls.tiers.tier import Tiers, tier_of

LeastMs = Callable[[str, Tiers], Mapping[int, float]]
"""Returns by bucket the time (ms) that a call must have left for a worker to take it; a worker sees
all calls of other buckets."""


class TieredLook:
    """Looks of one worker."""

    def __init__(self, lanes: CallLanes, worker: str) -> None:
        self._lanes, self._worker = lanes, worker
        self._tiers: Tiers = ()
        self.tier = 0  #: of this worker, whose wake-ups its slots wait for

    def look(self, slot: str, least_ms: LeastMs) -> tuple[LanesState, Mapping[int, float]]:
        """Returns what a slot sees, and the least times by which it was chosen."""
        least = least_ms(self._worker, self._tiers)
        state = self._lanes.look(slot, least)
        if state.tiers == self._tiers:
            return state, least
        self._tiers = state.tiers
        if self.tier != (tier := tier_of(self._worker, state.tiers)):
            self._lanes.ring(self.tier)  # its wake-up was for another slot
            self.tier = tier
        least = least_ms(self._worker, self._tiers)
        return self._lanes.look(slot, least), least


def see_all(worker: str, tiers: Tiers) -> Mapping[int, float]:
    """Implements `LeastMs`: the worker takes any call."""
    return {}
