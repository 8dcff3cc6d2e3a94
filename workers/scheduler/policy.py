"""When a launch leaves, from which lane, and why. Times are seconds on one clock.

Calls go before items. A call's lane leaves as soon as one of these holds (scheduler.md):

    full      as many rows as a launch takes
    deadline  waiting for one more row would make the most urgent call late
    knee      enough rows for 90 % of the best throughput
    pace      the pool's previous launch was at least its own time / replicas ago: idle replicas
              that pull in step would all be busy together, and everything waits a whole launch
    drain     the worker is stopping

A lane whose entries run alone is full with one.

Items wait for others for the model's window, which is their deadline, and for nothing else. Of the
lanes that may leave, the one with the oldest item goes first, full or not: slices then end in the
order they were claimed.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from jobs.calls.lanes import ALONE
from jobs.registry import Limits
from workers.scheduler.entries import FlushReason
from workers.scheduler.latency import LatencyModel

FILL_SHARE = 0.1
"""Items may ride with calls while they lengthen the launch by less than this share of it,"""
FILL_S = 0.001
"""or by less than this."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane at this moment. calls_due_s: when its most urgent call is due; items_since_s: when
    its oldest item arrived; both infinite where there is none."""

    lane: str
    bucket: int
    calls: int = 0
    calls_due_s: float = inf
    items: int = 0
    items_since_s: float = inf

    @property
    def alone(self) -> bool:
        """Each of its entries is launched by itself."""
        return self.lane.startswith(ALONE)


@dataclass(frozen=True, slots=True)
class PoolView:
    """The replicas that pull from the same lanes: when the latest of them launched calls, how
    long that was to take, and how many they are."""

    last_launch_s: float = -inf
    last_took_s: float = 0.0
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Flush:
    """Launch this lane now, with up to so many rows."""

    view: LaneView
    rows: int
    reason: FlushReason


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing leaves before this time, unless something arrives."""

    until_s: float


def decide(
    now_s: float,
    lanes: Sequence[LaneView],
    pool: PoolView,
    latency: LatencyModel,
    limits: Limits,
    *,
    draining: bool = False,
) -> Flush | Wait:
    """What an idle device does next."""
    with_calls = [view for view in lanes if view.calls]
    if with_calls:
        view = min(with_calls, key=lambda view: _calls_latest(view, latency))
        return _decide_calls(now_s, view, pool, latency, limits, draining)
    until_s = inf
    for view in sorted(lanes, key=lambda view: view.items_since_s):
        if view.items:
            decision = _decide_items(now_s, view, latency, limits, draining)
            if isinstance(decision, Flush):
                return decision
            until_s = min(until_s, decision.until_s)
    return Wait(until_s)


def _decide_calls(
    now_s: float,
    view: LaneView,
    pool: PoolView,
    latency: LatencyModel,
    limits: Limits,
    draining: bool,
) -> Flush | Wait:
    most = 1 if view.alone else most_rows(view.bucket, limits)
    latest = _calls_latest(view, latency)
    paced = pool.last_launch_s + pool.last_took_s / max(1, pool.replicas)
    if view.calls >= most:
        return Flush(view, most, "full")
    if now_s >= latest:
        return Flush(view, most, "deadline")
    if view.calls >= latency.knee(most, row_size(view.bucket)):
        return Flush(view, most, "knee")
    if now_s >= paced:
        return Flush(view, most, "pace")
    if draining:
        return Flush(view, most, "drain")
    return Wait(min(latest, paced))


def _decide_items(
    now_s: float, view: LaneView, latency: LatencyModel, limits: Limits, draining: bool
) -> Flush | Wait:
    most = most_rows(view.bucket, limits)
    latest = view.items_since_s + limits.window_ms / 1000
    if view.items >= most:
        return Flush(view, most, "full")
    if now_s >= latest:
        return Flush(view, most, "deadline")
    if view.items >= latency.knee(most, row_size(view.bucket)):
        return Flush(view, most, "knee")
    if draining:
        return Flush(view, most, "drain")
    return Wait(latest)


def _calls_latest(view: LaneView, latency: LatencyModel) -> float:
    return view.calls_due_s - latency.predict95((view.calls + 1) * row_size(view.bucket))


def most_rows(bucket: int, limits: Limits) -> int:
    """Rows of one launch, by the row limit and by the size budget at this bucket."""
    if bucket == 0 or limits.max_tokens == 0:
        return limits.max_batch
    return max(1, min(limits.max_batch, limits.max_tokens // bucket))


def row_size(bucket: int) -> int:
    """What one row adds to a launch's padded size."""
    return bucket or 1


def fill_rows(
    calls: int, slack_s: float, bucket: int, latency: LatencyModel, limits: Limits
) -> int:
    """How many items may join a launch of so many calls: they are to cost the calls nothing.

    slack_s: until the most urgent of the calls is due.
    """
    alone_s = latency.predict(calls * row_size(bucket))
    bound_s = alone_s + max(FILL_SHARE * alone_s, FILL_S)

    def too_many(rows: int) -> bool:
        size = rows * row_size(bucket)
        return latency.predict(size) > bound_s or latency.predict95(size) > slack_s

    return bisect_left(range(calls + 1, most_rows(bucket, limits) + 1), True, key=too_many)
