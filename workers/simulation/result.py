"""What a simulation found. Times are seconds since its beginning."""

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
    """One call: when its client sent it, when a launch took it (0: none did), when it was answered,
    refused or given up, and how."""

    arrived_s: float
    launched_s: float
    ended_s: float
    size: int
    outcome: Outcome
    reason: FlushReason | None = None

    @property
    def latency_s(self) -> float:
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
        return self.calls + self.items


@dataclass(frozen=True)
class Result:
    """lasted_s: until the last call had ended and everything asked for was over; slots: launches at
    a time, of all replicas; looks: how often a slot looked at the lanes; lost_tickets: how many of
    them were lost to a faster replica."""

    calls: Sequence[CallEnd]
    launches: Sequence[LaunchEnd]
    replicas: int
    slots: int
    target_s: float
    lasted_s: float
    looks: int = 0
    lost_tickets: int = 0

    @property
    def answered(self) -> list[CallEnd]:
        return [call for call in self.calls if call.outcome == "answered"]

    @cached_property
    def latencies_s(self) -> list[float]:
        """Of the calls that were answered, in order of size."""
        return sorted(call.latency_s for call in self.answered)

    def p(self, percent: float) -> float:
        """Seconds that so many of 100 answered calls took at most; 0 where none was."""
        return quantile(self.latencies_s, percent / 100)

    @cached_property
    def outcomes(self) -> Mapping[Outcome, int]:
        return Counter(call.outcome for call in self.calls)

    @property
    def miss_share(self) -> float:
        """Of all calls: answered after the target, or expired."""
        late = sum(latency_s > self.target_s for latency_s in self.latencies_s)
        return self._share(late + self.outcomes.get("expired", 0))

    @property
    def refused_share(self) -> float:
        """Of all calls: told at once that it won't do."""
        return self._share(sum(self.outcomes.get(why, 0) for why in REFUSALS))

    @property
    def goodput_per_s(self) -> float:
        """Calls answered within the target, a second."""
        return sum(s <= self.target_s for s in self.latencies_s) / max(self.lasted_s, 1e-9)

    @property
    def reasons(self) -> dict[str, float]:
        """The share of the launched calls, by the reason that their launch left for."""
        return _shares(Counter(call.reason for call in self.calls if call.reason))

    @property
    def launch_reasons(self) -> dict[str, float]:
        """The share of the launches with calls, by the reason that they left for."""
        return _shares(Counter(launch.reason for launch in self.launches if launch.calls))

    @property
    def busy_s(self) -> list[float]:
        """By replica: device time of its launches, those side by side counted each."""
        busy_s = [0.0] * self.replicas
        for launch in self.launches:
            busy_s[launch.replica] += self._within_s(launch)
        return busy_s

    @property
    def utilisation(self) -> float:
        """The share of all slots' time that launches were running."""
        return sum(self.busy_s) / max(self.lasted_s * self.slots, 1e-9)

    @property
    def items_run(self) -> float:
        """Items of the job, those of a launch that was cut short by its share."""
        return sum(
            launch.items * self._within_s(launch) / launch.took_s for launch in self.launches
        )

    @property
    def rows_per_launch(self) -> float:
        """The mean, calls and items together."""
        return sum(launch.rows for launch in self.launches) / max(1, len(self.launches))

    def _within_s(self, launch: LaunchEnd) -> float:
        return max(0.0, min(launch.took_s, self.lasted_s - launch.started_s))

    def _share(self, count: int) -> float:
        return count / max(1, len(self.calls))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Between the two nearest of an ordered sequence, in proportion; 0 of none."""
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _shares(counts: Mapping[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: count / total for name, count in sorted(counts.items())}
