"""Scheduler of one model in one worker: what waits, predictions of its launches, the next decision.

It has no thread and no clock: the device's threads, the tests and the simulator drive it.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf, sqrt

from jobs.calls.lanes import PROBED_AFTER_MS, Bulk, Ticket, bucket_of, lane_parts
from jobs.calls.profile import Profile, Times
from jobs.calls.tiers.tier import Speed, Tiers, is_slower, tier_of
from jobs.models.model import DEFAULT_SLICE_ITEMS, Model
from workers.scheduler.batch_limit import BatchLimit
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.lanes import ItemLanes, ItemsWaiting
from workers.scheduler.latency import LatencyModel
from workers.scheduler.policy import Flush, LaunchPolicy, Wait
from workers.scheduler.snapshot import LaneView, Rules, Waiting, merged

FLOOR = 0.05  # share of the device's time that is guaranteed to items

_SLICE_MS = 1000.0  # of device time: what slices are cut to that take twice as long
_CLAIM_MS = 250.0  # of device time, of a claim of several slices
_GROWTH = 2  # slices have at most so many times the rows of the largest launch that was measured
_SIZE_FOLLOW = 0.1  # weight of a launch in the mean size of its rows

_MAX_PAID_S = 10.0  # for which earlier device time counts against items
_GRACE_S = 1.0  # after its arrival an item is owed nothing yet
_NEXT_S, _RELIEF_S = 0.001, 0.02  # after which a slot takes over from the one that watched
_FADE = 0.98  # of the time of calls' launches, at each launch


class Scheduler:
    """Scheduler of one model. Not thread-safe: its owner holds a lock."""

    def __init__(self, model: Model) -> None:
        self.rules = Rules.from_model(model)
        self.latency = LatencyModel()
        self.policy = LaunchPolicy(self.latency, self.rules)
        self._batch_limit = BatchLimit(self.rules.limits.most_rows)
        self.items = ItemLanes(sized=self.rules.sized, shapes=self.rules.shapes)
        self._buckets = model.buckets or (0,)
        self._sizes = model.size_buckets or (1,)
        self.lanes_seen = 0  # lanes with entries, at the last decision
        self._calls_s = 0.0
        self._paid_until_s = 0.0
        self._measured_rows = inf  # of the largest launch
        self._mean_size = 0.0  # of a row, padding included; 0: nothing ran yet

    def seed(self, sweep: Sequence[tuple[LaunchSize, float]]) -> None:
        """Learns from the launches of the warm-up, with their seconds. Slices then begin small, up
        to launches of sizes that it has not measured."""
        self.latency.seed(sweep)
        self._measured_rows = max((work.rows for work, _ in sweep), default=0)

    def decide(
        self,
        now_s: float,
        waiting: Waiting,
        *,
        draining: bool = False,
        closed_s: float = 0.0,
        calls_alone: bool = False,
        overtakes: bool = False,
    ) -> Flush | Wait:
        """Decides what an idle slot does next. While `closed_s` is above 0 the engine accepts
        nothing: items wait for that long, calls are taken and rejected at once. calls_alone: items
        have other slots. overtakes: all slots are taken, and full launches give way to calls."""
        if overtakes:
            return self.policy.overtake(waiting.lanes)
        if closed_s:
            decision = self._decide(now_s, waiting, {}, draining)
            if isinstance(decision, Wait):
                return replace(decision, until_s=min(decision.until_s, now_s + closed_s))
            return decision
        own = {} if calls_alone else self.items.waiting()
        return self._decide(now_s, waiting, own, draining)

    def least_ms(self, worker: str, tiers: Tiers) -> dict[int, float]:
        """Returns by bucket the time (ms) that a call must have left for this worker to take it.

        A worker that faster ones stand beside leaves them what it can't answer in time; empty where
        there is none, or none that reaches the target.
        """
        if not tiers or not is_slower(worker, tiers):
            return {}
        ratio = tiers[0].launch_ms / tiers[tier_of(worker, tiers)].launch_ms
        return {
            bucket: 1000 * (self.policy.bound_s(view) + self.rules.margin_s)
            for bucket in self._buckets
            if self.policy.reaches(view := LaneView("", bucket), ratio)
        }

    def _decide(
        self, now_s: float, waiting: Waiting, own: dict[str, ItemsWaiting], draining: bool
    ) -> Flush | Wait:
        lanes = merged(waiting, own)
        self.lanes_seen = len(lanes)
        owed = any(view.items for view in lanes) and now_s >= self._owed_from_s(lanes)
        decision = self.policy.decide(
            now_s,
            lanes,
            waiting.pool,
            calls_s=self._calls_s or self._one_call_s(),
            owed=owed,
            draining=draining,
        )
        if isinstance(decision, Flush):
            return decision
        until_s = decision.until_s
        items = any(view.items for view in lanes)
        if items and not owed:
            until_s = min(until_s, self._owed_from_s(lanes))
        return self._watching(now_s, until_s, waiting, items, decision.leaves)

    def _watching(
        self, now_s: float, until_s: float, waiting: Waiting, items: bool, leaves: bool
    ) -> Wait:
        """Chooses the idle slot that watches waiting calls; another looks only if that one didn't:
        soon after it where it has items, for the launch that is due next. leaves: the calls
        are left to cheaper workers, and none is watched."""
        if not waiting.lanes or leaves:
            return Wait(until_s)
        if waiting.watched_s > now_s:
            relief_s = _NEXT_S if items else _RELIEF_S
            return Wait(max(until_s, waiting.watched_s + relief_s))
        knees = [
            self.latency.knee(self.rules.full_rows(view), self.rules.row(view))
            for view in waiting.lanes
        ]
        return Wait(until_s, watch=min(knees))

    def ticket(
        self,
        now_s: float,
        flush: Flush,
        waiting: Waiting,
        worker: str,
        slot: str,
        lease_s: float,
        bulk: Bulk = "mixed",
        without: Collection[str] = (),
    ) -> Ticket:
        """Builds the ticket for a flush's calls, or for telling the pool that items start here.

        A pool that has not launched for a while also tries calls that it seems too slow for: it may
        be faster now.
        """
        view, rows = flush.view, flush.rows
        expected = min(rows, view.calls or view.items, self.rules.full_rows(view))
        row = self.rules.row(view)
        took_s = self.latency.predict(LaunchSize.alike(expected, row.units, view.bucket))
        idle = now_s > waiting.pool.last_launch_s + PROBED_AFTER_MS / 1000
        return Ticket(
            lane=view.lane if view.calls else "",
            rows=rows if view.calls else 0,
            units=flush.units,
            sized=self.rules.sized or bool(flush.units),
            launched_before_ms=waiting.launched_ms,
            took_ms=took_s * 1000,
            needs_ms=0.0 if idle else self.latency.predict(row) * 1000,
            reason=flush.reason,
            worker=worker,
            slot=slot,
            lease_ms=lease_s * 1000,
            bulk=bulk,
            without=tuple(without),
            least_ms=waiting.least_of(view) if waiting.least_ms else 0.0,
        )

    def tells_pool(self, now_s: float, waiting: Waiting) -> bool:
        """Returns True if the pool must know of a launch of items alone: calls are expected."""
        return now_s < waiting.pool.quiet_s

    def close(
        self, now_s: float, flush: Flush, calls: Sequence[Entry], due_s: float, *, fill: bool = True
    ) -> Launch | None:
        """Returns the launch: calls with items that cost them nothing, or items alone; None if
        there is nothing to launch. `due_s` is when the most urgent call is due."""
        if calls:
            items = self._fill(now_s, flush, calls, due_s) if fill else []
        else:
            view = flush.view
            items = [] if view.calls else self.items.take(view.lane, flush.rows, flush.units)
        if not calls and not items:
            return None
        params = lane_parts(flush.view.lane)[0]
        rules = self.rules
        launch = Launch(
            params, flush.reason, calls, items, now_s, pads=rules.pads, sized=rules.sized
        )
        launch.predicted_s = self.latency.predict(launch.work)
        units = sum(entry.size for entry in calls)
        launch.bulk = len(calls) > flush.rows / 2 or units > flush.units / 4 > 0
        return launch

    def ended(self, now_s: float, launch: Launch, *, clean: bool = True) -> None:
        """Records a launch that took `engine_s`; `clean` if it ran once and without an error."""
        if launch.items:
            share = len(launch.items) / len(launch.entries)
            paid_s = max(self._paid_until_s, now_s) + share * launch.engine_s / launch.width / FLOOR
            self._paid_until_s = min(paid_s, now_s + _MAX_PAID_S)
        if launch.calls:
            took_s = self.latency.predict95(launch.work)
            self._calls_s = max(took_s, self._calls_s * _FADE)
        if clean:
            work = launch.work
            self.latency.observe(work, launch.engine_s)
            self._measured_rows = max(self._measured_rows, work.rows)
            size = work.units / work.rows
            follow = _SIZE_FOLLOW if self._mean_size else 1.0
            self._mean_size += follow * (size - self._mean_size)
        self._batch_limit.launched(len(launch.entries), clean=clean)
        self._apply_batch_limit()

    def shrink(self, rows: int) -> None:
        """Halves the most rows of a launch, after `rows` were too many for the memory; they grow
        again while launches fit."""
        self._batch_limit.ran_out_of_memory(rows)
        self._apply_batch_limit()

    def _apply_batch_limit(self) -> None:
        if self._batch_limit.rows != self.rules.limits.most_rows:
            limits = replace(self.rules.limits, max_batch=self._batch_limit.rows)
            self.rules = self.policy.rules = replace(self.rules, limits=limits)

    def profile(self, load_s: float = 0.0, slots: int = 0) -> Profile:
        """Returns the profile that api and keeper read; `slots` counts launches at a time, 0 for as
        many as are declared."""
        times = {}
        for size in self._sizes:
            bucket = bucket_of(size, self._buckets)
            full_rows = self.rules.full_rows(LaneView("", bucket, items=1, items_units=size))
            one, full = (LaunchSize.alike(rows, size, bucket) for rows in (1, full_rows))
            took_ms = (self.latency.predict(work) * 1000 for work in (full, one))
            times[size if self.rules.sized else 0] = Times(full_rows, *took_ms)
        return Profile(load_s * 1000, times, slots)

    def speed(self, price: float) -> Speed | None:
        """Returns how fast launches are here, as others compare it; None before any was measured.
        price: of the device, in any unit that all workers share."""
        view, row = self._usual_lane()
        one = self.latency.predict(row)
        full = self.latency.predict(
            LaunchSize.alike(self.rules.full_rows(view), row.units, view.bucket)
        )
        return Speed(sqrt(one * full) * 1000, price * self.item_ms()) if one else None

    def item_ms(self) -> float:
        """Predicts the device time of an item in a full launch, ms: of the middle bucket, or of the
        mean size where there are no buckets."""
        view, row = self._usual_lane()
        rows = self.rules.full_rows(view)
        full = LaunchSize.alike(rows, row.units, view.bucket)
        return self.latency.predict(full) * 1000 / rows

    def slice_items(self, launches: int) -> int:
        """Returns the most items of a slice, for so many launches at a time: `slice_items` of the
        limits, unless they take more than two seconds; then a second's worth, but enough for
        launches that are nearly as good as full ones in each bucket."""
        most = self.rules.limits.slice_items
        if self._measured_rows < most:
            view, row = self._usual_lane()
            if self._measured_rows < self.rules.full_rows(view):
                most = min(most, launches * max(1, _GROWTH * int(self._measured_rows)))
        item_ms = self.item_ms() / launches
        if item_ms * self.rules.limits.slice_items <= 2 * _SLICE_MS:
            return most
        view, row = self._usual_lane()
        knee = self.latency.knee(self.rules.full_rows(view), row)
        least = knee * launches * len(self._buckets)
        return min(most, max(least, int(_SLICE_MS / item_ms)))

    def claim_items(self) -> int:
        """Returns the items of a full launch, but no more than take a quarter of a second: a claim
        has several slices where one doesn't fill a launch. 0 where one does, and where the entry
        has smaller slices than others: they bound what is in memory."""
        limits = self.rules.limits
        if not DEFAULT_SLICE_ITEMS <= limits.slice_items < limits.most_rows:
            return 0
        view, _ = self._usual_lane()
        rows, each_ms = self.rules.full_rows(view), self.item_ms()
        return min(rows, int(_CLAIM_MS / each_ms)) if each_ms else rows

    def _usual_lane(self) -> tuple[LaneView, LaunchSize]:
        """Returns a lane of the usual items, and one of its rows."""
        bucket = self._buckets[len(self._buckets) // 2]
        size = bucket or self._mean_size or float(self._sizes[len(self._sizes) // 2])
        view = LaneView("", bucket, items=1, items_units=max(1, round(size)))
        return view, LaunchSize.alike(1, size, bucket)

    def _owed_from_s(self, lanes: Sequence[LaneView]) -> float:
        since_s = min(view.items_since_s for view in lanes if view.items)
        grace_s = max(_GRACE_S, self._one_call_s() / FLOOR)
        return max(self._paid_until_s, since_s + grace_s)

    def _one_call_s(self) -> float:
        return self.latency.predict95(LaunchSize.alike(1, self._sizes[-1], self._buckets[-1]))

    def _fill(
        self, now_s: float, flush: Flush, calls: Sequence[Entry], due_s: float
    ) -> list[Entry]:
        if not len(self.items):
            return []
        bucket = max(entry.bucket for entry in calls)
        work = LaunchSize.from_sizes([entry.size for entry in calls], bucket, pads=self.rules.pads)
        view, size = flush.view, float(bucket)
        if not bucket:  # an item may have any size
            mean = view.items_units / view.items if view.items else 0.0
            size = max(mean, *(entry.size for entry in calls))
        row = LaunchSize.alike(1, size, bucket)
        rows = self.policy.fill_rows(work, due_s - now_s, row, flush.rows, flush.units)
        left = max(1, flush.units - int(work.units)) if flush.units else 0
        return self.items.take_fill(view.lane, rows, left)
