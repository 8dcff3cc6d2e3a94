"""When a launch leaves, from which lane, and why. Times are seconds on one clock.

Calls go before items. The most urgent lane of calls leaves as soon as one of these holds:

    full      as many rows, or as much size, as a launch takes
    deadline  waiting for one more row would make the most urgent call late
    knee      enough rows for 90 % of the best throughput
    pace      its first call has waited for as long as evens out the pool's launches: idle replicas
              that pull in step would all be busy together, and everything waits a whole launch
    drain     the worker is stopping

A lane whose entries run alone is full with one.

Items wait for others for the model's window, which is their deadline. Of the lanes that may leave,
the one with the oldest item goes first, full or not: slices then end in the order they were
claimed. While calls are expected, items run alone only in gaps: a call that comes meanwhile must
still be answered in time, by this slot or by another.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import FlushReason
from workers.scheduler.latency import LatencyModel
from workers.scheduler.snapshot import LaneView, PoolView, Rules

FILL_TARGET = 0.15
"""Items may ride with calls while that lengthens the launch by less than this share of the
target, or"""
FILL_SHARE = 0.1
"""by less than this share of the launch."""

_FIXED = 1.5
_COMPANY = 1.2
_STEEP = 2
"""Found by simulation, for the least p95 over all loads: `millrace bench spacing`."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Launch this lane now, with up to so many rows and so much size (0: no bound)."""

    view: LaneView
    rows: int
    units: int
    reason: FlushReason


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing leaves before this time, unless something arrives. watch: the pool is told so, and
    that nobody need say what arrives until a lane has so many calls; 0: it isn't."""

    until_s: float
    watch: int = 0


def decide(
    now_s: float,
    lanes: Sequence[LaneView],
    pool: PoolView,
    latency: LatencyModel,
    rules: Rules,
    *,
    calls_s: float = 0.0,
    owed: bool = False,
    draining: bool = False,
) -> Flush | Wait:
    """What an idle slot does next. calls_s: what launches of calls take here; owed: items have had
    less of the device than they are guaranteed."""
    calls = [view for view in lanes if view.calls]
    items = sorted(
        (view.items_alone for view in lanes if view.items), key=lambda view: view.items_since_s
    )
    if items and (owed or not calls):
        allowed_s = inf if owed else gap_s(now_s, pool, rules, calls_s)
        decision = _decide_items(now_s, items, pool, latency, rules, allowed_s, owed, draining)
        if isinstance(decision, Flush) or not calls:
            return decision
    if not calls:
        return Wait(inf)
    view = min(calls, key=lambda view: _latest_s(view, latency, rules))
    return _decide_calls(now_s, view, pool, latency, rules, bool(items), draining)


def _decide_calls(
    now_s: float,
    view: LaneView,
    pool: PoolView,
    latency: LatencyModel,
    rules: Rules,
    filled: bool,
    draining: bool,
) -> Flush | Wait:
    rows = 1 if view.alone else rules.most_rows(view.bucket)
    units = rules.most_units
    latest_s = _latest_s(view, latency, rules)
    fills_up = filled and _is_fixed(view, latency, rules)
    paced_s = pool.paced_s if fills_up else _company_s(now_s, view, pool, latency, rules)
    reason: FlushReason | None = None
    if view.calls >= rows or (units and view.calls_units >= units):
        reason = "full"
    elif now_s >= latest_s:
        reason = "deadline"
    elif view.calls >= latency.knee(rules.full_rows(view), rules.row(view)):
        reason = "knee"
    elif now_s >= paced_s:
        reason = "pace"
    elif draining:
        reason = "drain"
    return Flush(view, rows, units, reason) if reason else Wait(min(latest_s, paced_s))


def _company_s(
    now_s: float, view: LaneView, pool: PoolView, latency: LatencyModel, rules: Rules
) -> float:
    """Until when a lane's first call waits for others: the even spacing of a pool that is always
    busy, the less of it the fewer calls there are to share a launch, and the less that saves. A
    slot that no other follows soon keeps to the even spacing: calls of a burst would else take a
    slot each."""
    if pool.slots == 1:
        return -inf
    spacing_s = pool.last_took_s / pool.slots * _saved(view, latency, rules)
    company: float = (spacing_s / max(pool.gap_s, 1e-6)) ** _STEEP
    first_s = view.calls_due_s - rules.target_s
    company_s = first_s + spacing_s * company / (company + _COMPANY)
    if pool.other_free_s <= now_s + spacing_s:
        return company_s
    return max(company_s, min(pool.paced_s, first_s + spacing_s))


def _latest_s(view: LaneView, latency: LatencyModel, rules: Rules) -> float:
    rows = min(view.calls + 1, rules.full_rows(view))
    return view.calls_due_s - latency.predict95(_rows_of(view, rows, rules))


def gap_s(now_s: float, pool: PoolView, rules: Rules, calls_s: float) -> float:
    """The longest that items may have this slot alone: a call that comes as they start waits for
    the end of it, or for another slot, and has to be answered in time. Where calls take too long
    for their target by themselves, items may take about as long."""
    if now_s >= pool.quiet_s:
        return inf
    spare_s = rules.target_s - rules.margin_s - calls_s
    if spare_s <= 0:
        return calls_s * (1 + FILL_SHARE)
    return inf if pool.other_free_s - now_s <= spare_s else spare_s


def _decide_items(
    now_s: float,
    views: Sequence[LaneView],
    pool: PoolView,
    latency: LatencyModel,
    rules: Rules,
    allowed_s: float,
    owed: bool,
    draining: bool,
) -> Flush | Wait:
    """While calls are expected, launches of fixed cost are evenly spaced, so that a slot is free
    for them soon; others are kept short."""
    expected = now_s < pool.quiet_s
    spaced = expected and not (owed or draining) and now_s < pool.paced_s
    until_s = inf
    for view in views:
        if spaced and _is_fixed(view, latency, rules):
            until_s = min(until_s, pool.paced_s)
            continue
        bound_s = _short_s(view, latency, rules) if owed and expected else allowed_s
        rows = _rows_within(bound_s, view, latency, rules)
        if rows == 0:
            until_s = min(until_s, _gap_from_s(pool, allowed_s))
            continue
        decision = _decide_lane(now_s, view, rows, latency, rules, draining)
        if isinstance(decision, Flush):
            return decision
        until_s = min(until_s, decision.until_s)
    return Wait(until_s)


def _decide_lane(
    now_s: float,
    view: LaneView,
    rows: int,
    latency: LatencyModel,
    rules: Rules,
    draining: bool,
) -> Flush | Wait:
    units = rules.most_units
    latest_s = view.items_since_s + rules.limits.window_ms / 1000
    reason: FlushReason | None = None
    if view.items >= rows or (units and view.items_units >= units):
        reason = "full"
    elif now_s >= latest_s:
        reason = "deadline"
    elif view.items >= latency.knee(min(rows, rules.full_rows(view)), rules.row(view)):
        reason = "knee"
    elif draining:
        reason = "drain"
    return Flush(view, rows, units, reason) if reason else Wait(latest_s)


def _saved(view: LaneView, latency: LatencyModel, rules: Rules) -> float:
    """The share of its launch that a call is spared which joins another's: 1 for a fixed cost."""
    one_s, two_s = (latency.predict(_rows_of(view, rows, rules)) for rows in (1, 2))
    return max(0.0, 2 - two_s / one_s) if one_s else 1.0


def _is_fixed(view: LaneView, latency: LatencyModel, rules: Rules) -> bool:
    """Whether a full launch takes hardly longer than one of a single row."""
    one, full = (_rows_of(view, rows, rules) for rows in (1, rules.full_rows(view)))
    return latency.predict(full) < _FIXED * latency.predict(one)


def _short_s(view: LaneView, latency: LatencyModel, rules: Rules) -> float:
    """What items that are owed a launch get while calls are about: a single row's time, and what
    costs next to nothing more."""
    one_s = latency.predict95(_rows_of(view, 1, rules))
    return one_s * (1 + FILL_SHARE)


def _gap_from_s(pool: PoolView, allowed_s: float) -> float:
    """When a gap that is too short now may be long enough."""
    return min(pool.quiet_s, max(pool.other_free_s - allowed_s, pool.paced_s))


def _rows_within(bound_s: float, view: LaneView, latency: LatencyModel, rules: Rules) -> int:
    """The most rows of a lane that take no longer than the bound, 0 where one takes longer."""
    most = rules.most_rows(view.bucket)
    if bound_s == inf:
        return most
    return bisect_left(
        range(1, most + 1),
        True,
        key=lambda rows: latency.predict95(_rows_of(view, rows, rules)) > bound_s,
    )


def _rows_of(view: LaneView, rows: int, rules: Rules) -> LaunchSize:
    return LaunchSize.alike(rows, rules.row(view).units, view.bucket)


def fill_rows(
    calls: LaunchSize,
    slack_s: float,
    row: LaunchSize,
    most_rows: int,
    most_units: int,
    latency: LatencyModel,
    target_s: float,
) -> int:
    """How many rows of items may join a launch of calls: they are to cost the calls little.

    row: one of them, at its longest; slack_s: until the most urgent of the calls is due.
    """
    alone_s = latency.predict(calls)
    bound_s = alone_s + max(FILL_SHARE * alone_s, FILL_TARGET * target_s)

    def too_many(rows: int) -> bool:
        work = calls.plus(rows, row.units)
        if most_units and work.units > most_units:
            return True
        return latency.predict(work) > bound_s or latency.predict95(work) > slack_s

    return bisect_left(range(1, most_rows - calls.rows + 1), True, key=too_many)
