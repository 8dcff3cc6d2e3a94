"""Decides when a launch leaves, from which lane and for which reason. Times are seconds on one
clock.

Calls go before items. A lane of calls may leave as soon as one of these holds:

    full      as many rows, or as much size, as a launch takes
    deadline  waiting for one more row would make the most urgent call late
    knee      enough rows for 90 % of the best throughput
    pace      its first call has waited for as long as evens out the pool's launches: idle replicas
              that pull in step would all be busy together, and everything waits a whole launch
    drain     the worker is stopping

A lane whose entries run alone is full with one. Of the lanes that may leave, the one whose tenant
has had least of the device, by weight, goes first, and among equals the most urgent: a tenant's
burst in one lane holds up no other lane.

Items wait for others for the model's window, which is their deadline. Of the lanes that may leave,
again the tenant's turn decides, and among equals the oldest item, full or not: slices then end in
the order they were claimed. While calls are expected, items run alone only in gaps: a call that
comes meanwhile must still be answered in time, by this slot or by another.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import FlushReason
from workers.scheduler.latency import LatencyModel
from workers.scheduler.snapshot import LaneView, PoolView, Rules

# Items may join calls while that lengthens the launch by less than the larger of these.
FILL_TARGET = 0.08  # share of the target
FILL_SHARE = 0.1  # share of the launch

_ROUNDING = 1e-9
_STAGGERED = 1.25  # of a full launch, from now on: what ends later is closed as a shorter one
_FIXED = 1.5  # a full launch of fixed cost takes less than this many times one of a single row
# Found by simulation, for the least p95 over all loads: `millrace bench spacing`.
_SHARING = 1.2
_STEEPNESS = 2


@dataclass(frozen=True, slots=True)
class Flush:
    """Decision to launch a lane now."""

    view: LaneView
    rows: int  #: at most
    units: int  #: size at most; 0: no bound
    reason: FlushReason


@dataclass(frozen=True, slots=True)
class Wait:
    """Decision to launch nothing before a time, unless something arrives."""

    until_s: float
    #: >0: the slot watches the lanes for the pool; arrivals wake it once a lane has that many calls
    watch: int = 0
    leaves: bool = False  #: calls wait, and are left to cheaper workers


class LaunchPolicy:
    """Policy of one model: what an idle slot does next, by its predictions and its rules."""

    def __init__(self, latency: LatencyModel, rules: Rules) -> None:
        self.latency, self.rules = latency, rules

    def decide(
        self,
        now_s: float,
        lanes: Sequence[LaneView],
        pool: PoolView,
        *,
        calls_s: float = 0.0,
        owed: bool = False,
        draining: bool = False,
    ) -> Flush | Wait:
        """Decides what an idle slot does next.

        `calls_s` is the time that launches of calls take here; `owed` says that items have had less
        of the device than they are guaranteed.
        """
        calls = [view for view in lanes if view.calls]
        items = sorted(
            (view.items_alone for view in lanes if view.items),
            key=lambda view: (view.items_turn, view.items_since_s),
        )
        if items and (owed or not calls):
            allowed_s = inf if owed else self.gap_s(now_s, pool, calls_s)
            decision = self._decide_items(now_s, items, pool, allowed_s, owed, draining)
            if isinstance(decision, Flush) or not calls:
                return decision
        until_s, leaves = inf, False
        for view in sorted(calls, key=lambda view: (view.calls_turn, self._latest_s(view))):
            if pool.cheaper and now_s < (left := self._left_until_s(now_s, view, calls, pool)):
                until_s, leaves = min(until_s, left), True
                continue
            decision = self._decide_calls(now_s, view, pool, bool(items), draining)
            if isinstance(decision, Flush):
                return decision
            until_s = min(until_s, decision.until_s)
        return Wait(until_s, leaves=leaves)

    def bound_s(self, view: LaneView) -> float:
        """Returns the longest that a launch of calls may take on a worker that faster ones stand
        beside: a full one, up to half of the target or a little more than a single row takes."""
        one_s, full_s = (
            self.latency.predict95(self._size(view, rows))
            for rows in (1, self.rules.full_rows(view))
        )
        return min(full_s, max(_FIXED * one_s, self.rules.target_s / 2))

    def reaches(self, view: LaneView, ratio: float) -> bool:
        """Returns True if workers whose launches take `ratio` times as long as here can answer a
        call in time."""
        one_s = ratio * self.latency.predict(self._size(view, 1))
        return one_s + self.rules.margin_s < self.rules.target_s

    def _left_until_s(
        self, now_s: float, view: LaneView, calls: Sequence[LaneView], pool: PoolView
    ) -> float:
        """Returns until when a lane is left to cheaper workers, which can launch all that waits in
        time; a time that has passed where they can't."""
        if view.alone:
            return -inf
        launches = sum(
            -(-(other.calls + other.urgent) // self.rules.full_rows(other)) for other in calls
        )
        due_s = view.calls_due_s - self.rules.margin_s
        rows = min(view.calls, self.rules.full_rows(view))
        took_s = self.latency.predict95(self._size(view, rows))
        until_s = -inf
        for tier in pool.cheaper:
            if tier.spot and view.stays:
                continue
            its_s = tier.ratio * took_s
            by_s = min(due_s, now_s + max(took_s, its_s))
            for free_s in tier.free_s:
                launches -= max(0, int((by_s - max(now_s, free_s)) / its_s + _ROUNDING))
            until_s = max(until_s, due_s - its_s)
        return until_s if launches <= 0 else -inf

    def overtake(self, lanes: Sequence[LaneView]) -> Flush | Wait:
        """Decides for a slot that may launch what overtakes full launches: the calls whose turn is
        next."""
        calls = [view for view in lanes if view.calls]
        if not calls:
            return Wait(inf)
        view = min(calls, key=lambda view: (view.calls_turn, view.calls_due_s))
        return Flush(view, self.rules.most_rows(view.bucket), self.rules.most_units, "pace")

    def _decide_calls(
        self, now_s: float, view: LaneView, pool: PoolView, filled: bool, draining: bool
    ) -> Flush | Wait:
        rules = self.rules
        rows, units = 1 if view.alone else rules.most_rows(view.bucket), rules.most_units
        if pool.faster:
            rows = min(rows, max(1, self._rows_within(self.bound_s(view), view)))
        latest_s = self._latest_s(view)
        fills_up = filled and self._is_fixed(view)
        paced_s = pool.paced_s if fills_up else self._sharing_s(now_s, view, pool)
        reason: FlushReason | None = None
        if view.calls >= rows or (units and view.calls_units >= units):
            reason = "full"
        elif now_s >= latest_s:
            reason = "deadline"
        elif view.calls >= self.latency.knee(rules.full_rows(view), rules.row(view)):
            reason = "knee"
        elif now_s >= paced_s:
            reason = "pace"
        elif draining:
            reason = "drain"
        return Flush(view, rows, units, reason) if reason else Wait(min(latest_s, paced_s))

    def _sharing_s(self, now_s: float, view: LaneView, pool: PoolView) -> float:
        """Returns until when a lane's first call waits for others to share its launch.

        The wait is the even spacing of a pool that is always busy, reduced the fewer calls there
        are to share a launch, and the less sharing saves. A slot that no other follows soon keeps
        to the even spacing: calls of a burst would else take a slot each.
        """
        if pool.slots == 1:
            return -inf
        spacing_s = pool.last_took_s / pool.slots * self._saved(view)
        calls: float = (spacing_s / max(pool.gap_s, 1e-6)) ** _STEEPNESS
        first_s = view.calls_due_s - self.rules.target_s
        until_s = first_s + spacing_s * calls / (calls + _SHARING)
        if pool.other_free_s <= now_s + spacing_s:
            return until_s
        return max(until_s, min(pool.paced_s, first_s + spacing_s))

    def _latest_s(self, view: LaneView) -> float:
        rows = min(view.calls + 1, self.rules.full_rows(view))
        return view.calls_due_s - self.latency.predict95(self._size(view, rows))

    def gap_s(self, now_s: float, pool: PoolView, calls_s: float) -> float:
        """Returns the longest that items may have this slot alone.

        A call that comes as they start waits for their end, or for another slot, and has to be
        answered in time. Where calls alone take too long for their target, items may take about as
        long as they do.
        """
        if now_s >= pool.quiet_s:
            return inf
        spare_s = self.rules.target_s - self.rules.margin_s - calls_s
        if spare_s <= 0:
            return calls_s * (1 + FILL_SHARE)
        return inf if pool.other_free_s - now_s <= spare_s else spare_s

    def _decide_items(
        self,
        now_s: float,
        views: Sequence[LaneView],
        pool: PoolView,
        allowed_s: float,
        owed: bool,
        draining: bool,
    ) -> Flush | Wait:
        """Decides for items alone. While calls are expected, launches of fixed cost are evenly
        spaced, so that a slot is soon free for calls; others are kept short, and end in turn."""
        expected = now_s < pool.quiet_s
        spaced = expected and not (owed or draining) and now_s < pool.paced_s
        until_s = inf
        for view in views:
            if spaced and self._is_fixed(view):
                until_s = min(until_s, pool.paced_s)
                continue
            bound_s = allowed_s
            if owed and expected:  # a single row, and what costs next to nothing more
                bound_s = self.latency.predict95(self._size(view, 1)) * (1 + FILL_SHARE)
            rows = self._rows_within(bound_s, view)
            if rows == 0:  # the gap may be long enough then
                gap_from_s = max(pool.other_free_s - allowed_s, pool.paced_s)
                until_s = min(until_s, pool.quiet_s, gap_from_s)
                continue
            if expected and not (owed or draining or self._is_fixed(view)):
                rows = min(rows, self._staggered_rows(now_s, view, pool))
            decision = self._decide_lane(now_s, view, rows, draining)
            if isinstance(decision, Flush):
                return decision
            until_s = min(until_s, decision.until_s)
        return Wait(until_s)

    def _staggered_rows(self, now_s: float, view: LaneView, pool: PoolView) -> int:
        """Returns the most rows of a launch of items for two slots to end in turn.

        A call waits for the end of a launch: where both end together that is a whole one, where
        they end in turn half of it. One shorter launch is enough: full ones follow each other so.
        """
        rest_s = pool.other_free_s - now_s
        if pool.slots != 2 or rest_s <= 0:
            return self.rules.most_rows(view.bucket)
        full_s = self.latency.predict95(self._size(view, self.rules.full_rows(view)))
        apart_s = rest_s + full_s / 2
        if apart_s > _STAGGERED * full_s:
            apart_s -= full_s
        return max(1, self._rows_within(apart_s, view))

    def _decide_lane(self, now_s: float, view: LaneView, rows: int, draining: bool) -> Flush | Wait:
        rules = self.rules
        units = rules.most_units
        latest_s = view.items_since_s + rules.limits.window_ms / 1000
        reason: FlushReason | None = None
        if view.items >= rows or (units and view.items_units >= units):
            reason = "full"
        elif now_s >= latest_s:
            reason = "deadline"
        elif view.items >= self.latency.knee(min(rows, rules.full_rows(view)), rules.row(view)):
            reason = "knee"
        elif draining:
            reason = "drain"
        return Flush(view, rows, units, reason) if reason else Wait(latest_s)

    def _saved(self, view: LaneView) -> float:
        """Returns the share of its launch that a call saves by joining another; 1 for a fixed
        cost."""
        one_s, two_s = (self.latency.predict(self._size(view, rows)) for rows in (1, 2))
        return max(0.0, 2 - two_s / one_s) if one_s else 1.0

    def _is_fixed(self, view: LaneView) -> bool:
        """Returns True if a full launch takes hardly longer than one of a single row."""
        one, full = (self._size(view, rows) for rows in (1, self.rules.full_rows(view)))
        return self.latency.predict(full) < _FIXED * self.latency.predict(one)

    def _rows_within(self, bound_s: float, view: LaneView) -> int:
        """Returns the most rows of a lane that take no longer than the bound; 0 if one does."""
        most = self.rules.most_rows(view.bucket)
        if bound_s == inf:
            return most
        return bisect_left(
            range(1, most + 1),
            True,
            key=lambda rows: self.latency.predict95(self._size(view, rows)) > bound_s,
        )

    def _size(self, view: LaneView, rows: int) -> LaunchSize:
        return LaunchSize.alike(rows, self.rules.row(view).units, view.bucket)

    def fill_rows(
        self, calls: LaunchSize, slack_s: float, row: LaunchSize, most_rows: int, most_units: int
    ) -> int:
        """Returns how many rows of items may join a launch of calls at little cost to the calls.

        `row` is one item at its longest; `slack_s` the time until the most urgent call is due.
        """
        latency = self.latency
        alone_s = latency.predict(calls)
        bound_s = alone_s + max(FILL_SHARE * alone_s, FILL_TARGET * self.rules.target_s)

        def _too_many(rows: int) -> bool:
            work = calls.plus(rows, row.units)
            if most_units and work.units > most_units:
                return True
            return latency.predict(work) > bound_s or latency.predict95(work) > slack_s

        return bisect_left(range(1, most_rows - calls.rows + 1), True, key=_too_many)
