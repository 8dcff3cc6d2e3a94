"""Result of a simulation. Times are seconds since its beginning."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor
from typing import Literal

from jobs.calls.lanes import RejectReason
from workers.scheduler.entries import FlushReason

Outcome = Literal["answered", "expired"] | RejectReason
REFUSALS: tuple[RejectReason, ...] = ("late", "overloaded", "no_worker")


@dataclass(frozen=True, slots=True)
class CallEnd:
    """One call."""

    arrived_s: float  #: when its client sent it
    launched_s: float  #: when a launch took it; 0: none did
    ended_s: float  #: when it was answered, rejected or expired
    size: int
    outcome: Outcome
    reason: FlushReason | None = None  #: flush reason of its launch
    tenant: str = ""

    @property
    def latency_s(self) -> float:
        """Seconds from arrival to end."""
        return self.ended_s - self.arrived_s


@dataclass(frozen=True, slots=True)
class LaunchEnd:
    """One launch on a slot of a replica."""

    replica: int
    started_s: float
    took_s: float
    calls: int
    items: int
    reason: FlushReason

    @property
    def rows(self) -> int:
        """Number of calls and items."""
        return self.calls + self.items


@dataclass(frozen=True)
class Result:
    """Calls and launches of a simulation, and figures derived from them."""

    calls: Sequence[CallEnd]
    launches: Sequence[LaunchEnd]
    replicas: int
    slots: int  #: launches at a time, of all replicas
    target_s: float
    lasted_s: float  #: until the last call had ended and `lasts_s` were over
    looks: int = 0  #: how often a slot looked at the lanes
    lost_tickets: int = 0  #: looks that lost their calls to a faster replica

    @property
    def answered(self) -> list[CallEnd]:
        """Calls that were answered."""
        return [call for call in self.calls if call.outcome == "answered"]

    @cached_property
    def latencies_s(self) -> list[float]:
        """Latencies of answered calls, ascending."""
        return sorted(call.latency_s for call in self.answered)

    def p(self, percent: float) -> float:
        """Returns a percentile of the answered calls' latencies, s; 0 without any."""
        return quantile(self.latencies_s, percent / 100)

    @cached_property
    def outcomes(self) -> Mapping[Outcome, int]:
        """Number of calls by outcome."""
        return Counter(call.outcome for call in self.calls)

    @property
    def miss_share(self) -> float:
        """Share of all calls that were answered after the target, or expired."""
        late = sum(latency_s > self.target_s for latency_s in self.latencies_s)
        return self._share(late + self.outcomes.get("expired", 0))

    @property
    def refused_share(self) -> float:
        """Share of all calls that were rejected."""
        return self._share(sum(self.outcomes.get(why, 0) for why in REFUSALS))

    @property
    def goodput_per_s(self) -> float:
        """Calls answered within the target, per second."""
        return sum(s <= self.target_s for s in self.latencies_s) / max(self.lasted_s, 1e-9)

    @property
    def reasons(self) -> dict[str, float]:
        """Share of the launched calls by flush reason."""
        return _shares(Counter(call.reason for call in self.calls if call.reason))

    @property
    def launch_reasons(self) -> dict[str, float]:
        """Share of the launches with calls by flush reason."""
        return _shares(Counter(launch.reason for launch in self.launches if launch.calls))

    @property
    def busy_s(self) -> list[float]:
        """Device time of each replica's launches, s; simultaneous ones count each."""
        busy_s = [0.0] * self.replicas
        for launch in self.launches:
            busy_s[launch.replica] += self._within_s(launch)
        return busy_s

    @property
    def utilisation(self) -> float:
        """Share of all slots' time in which launches were running."""
        return sum(self.busy_s) / max(self.lasted_s * self.slots, 1e-9)

    @property
    def items_run(self) -> float:
        """Number of the job's items; those of a launch cut short count by its share."""
        return sum(
            launch.items * self._within_s(launch) / launch.took_s for launch in self.launches
        )

    @property
    def rows_per_launch(self) -> float:
        """Mean number of calls and items."""
        return sum(launch.rows for launch in self.launches) / max(1, len(self.launches))

    def _within_s(self, launch: LaunchEnd) -> float:
        return max(0.0, min(launch.took_s, self.lasted_s - launch.started_s))

    def _share(self, count: int) -> float:
        return count / max(1, len(self.calls))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Returns a quantile of an ascending sequence, interpolated; 0 for an empty one."""
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: count / total for name, count in sorted(counts.items())}
