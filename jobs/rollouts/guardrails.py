"""Guardrails of a rollout: a fold over the records of its launches, without a clock.

The unit is a launch, since calls of one launch are not independent; where callers are sticky, a
caller; of a model that generates, a call (jobs/rollouts/independence.py). Each guardrail bets on
where its events fall (jobs/rollouts/evidence.py); a rollout is rolled back by the mean of them, so
that one probability of a false alarm holds for all of them together.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import exp, inf, log
from typing import Literal

from jobs.rollouts.cost import CostRatio, Quantiles
from jobs.rollouts.counts import LaneCounts, LostRun
from jobs.rollouts.evidence import Evidence, LaunchShare, mean
from jobs.rollouts.independence import MOST_CALLERS, CallerSample, IndependentEvents
from jobs.rollouts.lane_figures import LaneFigures
from jobs.rollouts.records import LaunchRecord
from jobs.rollouts.share import log_beta

Guardrail = Literal["errors", "latency", "ttft", "itl", "output"]
GUARDRAILS: tuple[Guardrail, ...] = ("errors", "latency", "ttft", "itl", "output")
TITLES = {
    "errors": "launches with a failed call",
    "latency": "launches slower than the control's p75 and p95",
    "ttft": "first tokens later than the control's p75 and p95",
    "itl": "tokens slower than the control's p75 and p95",
    "output": "launches with an empty, truncated or invalid output",
}

_EQUAL = 0.5  # share of the canary beside a control of the same size
_SLOW = (0.75, 0.95)
_KEPT = 1000  # values of the control behind its quantiles
_LEAST = 50
_LOST_IN_A_ROW = 10
_RATIO_PRIOR = 50.0  # equal shares are expected within a few percent
_MOST_LOG = 700.0


class SlowEvents:
    """Evidence that values of the canary exceed quantiles of the control more often."""

    def __init__(self, name: str, events: IndependentEvents) -> None:
        self._quantiles = Quantiles(_SLOW, _KEPT, _LEAST)
        self._evidence = [Evidence() for _ in _SLOW]
        self._kinds, self._events = [f"{name} {share}" for share in _SLOW], events

    def add(self, launch: Mapping[LaunchRecord, float], *, canary: bool) -> None:
        """Adds the values of a launch of the canary or the control."""
        limits = self._quantiles.values or ()
        for kind, evidence, limit in zip(self._kinds, self._evidence, limits, strict=False):
            slow = [record for record, value in launch.items() if value > limit]
            if slow and self._events.is_new(kind, slow):
                evidence.add(canary, _EQUAL)
        if not canary:
            for value in launch.values():
                self._quantiles.add(value)

    @property
    def value(self) -> float:
        """Evidence."""
        return mean([one.value for one in self._evidence])

    @property
    def p95(self) -> float:
        """The control's p95; 0: not known yet."""
        return self._quantiles.values[-1] if self._quantiles.values else 0.0


class Observations:
    """Everything that the launches of a rollout say so far.

    step_times_s: when each step began, growing: what is counted by step starts again.
    alone_from_s: when the canary got all calls; there is no control from then on, and nothing to
    compare launches with.
    """

    def __init__(
        self,
        step_times_s: Sequence[float] = (),
        *,
        alpha: float = 0.01,
        alone_from_s: float = inf,
    ) -> None:
        self.canary, self.control = LaneCounts(), LaneCounts()
        self.step_canary = LaneCounts()  #: launches of the canary at the present step
        self.figures = {"canary": LaneFigures(), "control": LaneFigures()}
        self.device, self.price = CostRatio(), CostRatio()
        self.errors_beside_control, self.errors_beside_all = Evidence(), Evidence()
        self.unusable, self.truncated = Evidence(), Evidence()
        self._events, self._callers = IndependentEvents(), CallerSample()
        self.slow = {name: SlowEvents(name, self._events) for name in ("latency", "ttft", "itl")}
        self.missed_in_a_row = 0  #: calls of the canary that the stable version answered instead
        self._alpha, self._alone_from_s = alpha, alone_from_s
        self._share = LaunchShare()
        self._steps = deque(step_times_s)
        self._lost = {"canary": LostRun(), "control": LostRun()}

    def begin_step(self, at_s: float, *, alone: bool = False) -> None:
        """Counts anew what is counted by step, from this time on. alone: the canary gets all calls,
        see `alone_from_s`."""
        self._steps.append(at_s)
        if alone:
            self._alone_from_s = at_s

    def reach(self, at_s: float) -> None:
        """Begins the steps up to this time."""
        while self._steps and self._steps[0] <= at_s:
            self._steps.popleft()
            self.step_canary, self._share = LaneCounts(), LaunchShare()

    def add(self, records: Iterable[LaunchRecord]) -> None:
        """Adds launches, in the order of the stream."""
        for launch in _launches(records):
            first = launch[0]
            self.reach(first.at_s)
            known = [record for record in launch if self._callers.has(record.unit)]
            if first.lane == "missed":
                for record in known:
                    self._add_missed(record)
            elif first.at_s >= self._alone_from_s:
                self._add_alone(known)
            elif first.lane == "stable":
                self._add_stable(first)
            elif known:
                self._add(known, canary=first.lane == "canary")

    def _add_missed(self, record: LaunchRecord) -> None:
        self.missed_in_a_row += record.calls
        if record.at_s < self._alone_from_s:
            self.canary.add_missed(record)

    def _add_alone(self, launch: Sequence[LaunchRecord]) -> None:
        for record in launch:
            if record.lane == "canary":
                self.step_canary.add(record)
                self.canary.last_at_s = max(self.canary.last_at_s, record.at_s)
                self._lost["canary"].add(record)
                self.missed_in_a_row = 0

    def _add_stable(self, record: LaunchRecord) -> None:
        share = self._share.value
        if record.failed and share is not None:
            self.errors_beside_all.add(False, share, record.failed)
        self._share.add(stable=record.launches)

    def _add(self, launch: Sequence[LaunchRecord], *, canary: bool) -> None:
        for record in launch:
            (self.canary if canary else self.control).add(record)
            self.figures[record.lane].add(record)
            self._lost[record.lane].add(record)
            if canary:
                self.step_canary.add(record)
                self.missed_in_a_row = 0
        if self._is_new("errors", [record for record in launch if record.failed]):
            self.errors_beside_control.add(canary, _EQUAL)
            alike = not launch[0].unit and not launch[0].lasted_ms  # the rest is recorded so, too
            if alike and (share := self._share.value):
                self.errors_beside_all.add(canary, share)
        if self._is_new("unusable", [one for one in launch if one.empty + one.invalid]):
            self.unusable.add(canary, _EQUAL)
        if self._is_new("truncated", [record for record in launch if record.truncated]):
            self.truncated.add(canary, _EQUAL)
        self._share.add(**{"canary" if canary else "stable": 1})
        self._add_costs([one for one in launch if one.failed < one.calls], canary=canary)
        if len(self.canary.units) + len(self.control.units) > MOST_CALLERS:
            self._follow_half()

    def _is_new(self, kind: str, having: Sequence[LaunchRecord]) -> bool:
        return bool(having) and self._events.is_new(kind, having)

    def _add_costs(self, launch: Sequence[LaunchRecord], *, canary: bool) -> None:
        for name, slow in self.slow.items():
            values = {one: value for one in launch if (value := getattr(one, f"{name}_ms")) > 0}
            if values:
                slow.add(values, canary=canary)
        if not launch:
            return
        first = launch[0]  # callers of one launch cost alike: it stands for all
        if first.residual > 0:
            self.device.add(first.residual, canary=canary, unit=first.unit)
        if first.price > 0:
            self.price.add(first.price / first.calls, canary=canary, unit=first.unit)

    def _follow_half(self) -> None:
        """Follows half of the callers from now on, and forgets the others."""
        self._callers.halvings += 1
        kept = set(filter(self._callers.has, self.canary.units | self.control.units))
        for counts in (self.canary, self.control, self.step_canary):
            counts.units &= kept
        for figures in self.figures.values():
            figures.keep(kept)
        self._events.keep(kept)
        self.device.keep(kept)
        self.price.keep(kept)

    # -- what they say

    @property
    def evidence(self) -> dict[Guardrail, float]:
        """Evidence of each guardrail against the canary."""
        errors = mean([self.errors_beside_control.value, self.errors_beside_all.value])
        slow = {name: one.value for name, one in self.slow.items()}
        return {
            "errors": errors,
            "latency": slow["latency"],
            "ttft": slow["ttft"],
            "itl": slow["itl"],
            "output": mean([self.unusable.value, self.truncated.value]),
        }

    @property
    def lost_in_a_row(self) -> int:
        """Launches of the canary in a row that gave nothing, while those of the control did; 0 if
        fewer than ten."""
        lost, control_lost = self._lost["canary"].length, self._lost["control"].length
        return lost if lost >= _LOST_IN_A_ROW and not control_lost else 0

    @property
    def at_step(self) -> int:
        """Launches of the canary at the present step; callers, where they are sticky."""
        counts = self.step_canary
        return (len(counts.units) << self._callers.halvings) + counts.anonymous

    @property
    def mismatch(self) -> float:
        """Upper bound of the probability that both lanes have as different numbers of calls
        (callers, where they are sticky) by chance, at any time; 1: none.

        Beta-binomial mixture for equal shares: Lindon and Malek, "Anytime-valid inference for
        multinomial count data", 2022. A χ² test would find one by chance sooner or later.
        """
        lanes = self.canary, self.control
        sticky = any(lane.units for lane in lanes)
        a, b = (len(lane.units) if sticky else lane.calls + lane.missed for lane in lanes)
        prior = _RATIO_PRIOR
        logarithm = log_beta(prior + a, prior + b) - log_beta(prior, prior) + (a + b) * log(2)
        return min(1.0, exp(-min(_MOST_LOG, logarithm)))

    def shares(self) -> Iterator[tuple[str, float, float]]:
        """Yields what is counted by call: its name, and its share in the canary and the control."""
        for name in ("failed", "empty", "truncated", "invalid"):
            ours, theirs = (getattr(x, name) / max(1, x.calls) for x in (self.canary, self.control))
            yield name, ours, theirs


def _launches(records: Iterable[LaunchRecord]) -> Iterator[Sequence[LaunchRecord]]:
    """Yields the records of each launch."""
    launch = list[LaunchRecord]()
    for record in records:
        if record.launches and launch:
            yield launch
            launch = []
        launch.append(record)
    if launch:
        yield launch
