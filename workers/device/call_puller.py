"""Worker's side of the call lanes, on the worker's clock. While Redis is away there are no calls,
and the device goes on with items."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

from redis import RedisError
from redis import TimeoutError as RedisTimeout

from jobs import clock
from jobs.calls.lanes import CallLanes, Ticket
from jobs.calls.messages import Call, Reply
from jobs.calls.profile import Profile
from jobs.calls.streams.log import CallLog, Progress
from jobs.calls.tiers.look import LeastMs, TieredLook, see_all
from jobs.calls.tiers.tier import SPOT_SPEED, Speed
from workers.items.results import outcome
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.policy import Wait
from workers.scheduler.snapshot import Waiting

_log = logging.getLogger(__name__)
_BACKOFF_S = 1.0  # pause after Redis failed
_MAX_BACKOFF_S = 8.0  # while it is silent: each try holds up the device until its timeout
_UNHEARD_S = 5.0  # after it took no notification: idle slots wait in this process, not on Redis
_REPLY_FOR_S = 5.0  # replies are retried for so long
_PAUSE_S = 0.2
_IDLE_WAIT_S = 3.0  # between two looks of an idle slot
_IDLE_LOOKS_PER_S = 10  # of all models of a worker: 50 of them look every 5 s
_DOUBT_S = 10.0  # Redis may still carry out a take that had no answer for so long


@dataclass(slots=True)
class LookPace:
    """Pace of the looks of all idle models of one worker: together so many a second."""

    models: int = 1  #: models that the worker serves

    @property
    def idle_wait_s(self) -> float:
        """Longest time between two looks at one model's lanes, s; notifications come at once."""
        return max(_IDLE_WAIT_S, self.models / _IDLE_LOOKS_PER_S)


class CallPuller:
    """Looks for calls, takes them and replies to them, for one model of one worker.

    The worker announces itself at least once in `lease_s`. slots: launches at a time; price: of
    its device, beside those of other workers; spot: its machine may be reclaimed."""

    def __init__(
        self,
        lanes: CallLanes,
        worker: str,
        lease_s: float,
        slots: int = 1,
        pace: LookPace | None = None,
        price: float = 1.0,
        *,
        spot: bool = False,
    ) -> None:
        self._lanes, self.worker, self.lease_s, self._slots = lanes, worker, lease_s, slots
        self.pace, self.price, self._spot = pace or LookPace(), price, spot
        self._backoff_s, self._backoff_until_s = _BACKOFF_S, -inf
        self._unheard_until_s = -inf
        self.token = 0  #: of the latest take
        self._look = TieredLook(lanes, worker)
        self._doubtful: dict[int, float] = {}  # by token of a take without an answer: until when

    def look(self, slot: str, least_ms: LeastMs = see_all) -> Waiting:
        """Returns the calls that wait, for a slot that is idle. least_ms: of those it sees."""
        if clock.monotonic() < self._backoff_until_s:
            return Waiting()
        try:
            self._abort_doubtful()
            look, least = self._look.look(slot, least_ms)
        except RedisError as error:
            self._back_off(error)
            return Waiting()
        offset_s = clock.monotonic() - look.now_ms / 1000
        return Waiting.from_look(look, slot, self._slots, offset_s, least)

    def take(self, ticket: Ticket, waiting: Waiting) -> list[Call] | None:
        """Pops calls, with their times on our clock, ms. Returns None where the pool launched since
        `waiting`, or Redis gave no answer: what it may have popped is put back later."""
        self.token += 1
        offset_ms = waiting.offset_s * 1000
        try:
            return self._lanes.take(replace(ticket, token=self.token, offset_ms=offset_ms))
        except RedisError as error:
            self._doubtful[self.token] = clock.monotonic() + _DOUBT_S
            self._back_off(error)
            return None

    def others_ready(self, *, announced: bool = False) -> bool:
        """Returns True if another worker takes calls. announced: this one is announced as ready."""
        try:
            return self._lanes.look(f"{self.worker}/0").replicas > announced
        except RedisError as error:
            self._back_off(error)
            return False

    def put_back(self, token: int, *, alone: bool = False) -> bool:
        """Puts back the calls of a take, for another worker; alone: where they run alone. Returns
        False where Redis is away: they are recovered once this worker is known to have ended."""
        try:
            self._lanes.abort(self.worker, token, alone=alone)
        except RedisError as error:
            self._back_off(error)
            return False
        return True

    def give_up(self, holders: Collection[str]) -> None:
        """Gives calls to another worker, as if this one had died. holders: of the calls."""
        try:
            self._lanes.recover(holders)
        except RedisError as error:
            self._back_off(error)

    def _abort_doubtful(self) -> None:
        for token, until_s in list(self._doubtful.items()):
            self._lanes.abort(self.worker, token)
            if clock.monotonic() > until_s:
                del self._doubtful[token]

    def wait_for_wakeup(self, slot: str, timeout_s: float) -> bool:
        """Blocks until there may be calls, until `notify`, or for `timeout_s`. Returns False if
        Redis is away, or has no memory for a notification."""
        now_s = clock.monotonic()
        if now_s < self._backoff_until_s or now_s < self._unheard_until_s:
            return False
        try:
            self._lanes.wait_for_wakeup(slot, timeout_s, self._look.tier)
        except RedisError as error:
            self._unheard_until_s = clock.monotonic() + _UNHEARD_S
            self._back_off(error)
            return False
        return True

    def ring(self, tier: int) -> None:
        """Wakes a slot of a tier."""
        try:
            self._lanes.ring(tier)
        except RedisError as error:
            self._back_off(error)

    def notify(self, slot: str) -> None:
        """Wakes a slot that is blocked in `wait_for_wakeup`."""
        try:
            self._lanes.notify(slot)
        except RedisError as error:
            self._unheard_until_s = clock.monotonic() + _UNHEARD_S
            self._back_off(error)

    def hold_prefixes(self, slot: str, digests: Collection[str], *, held: bool) -> None:
        """Tells which calls should wake this slot first; not held: any slot."""
        try:
            self._lanes.hold_prefixes(self.worker, slot, digests, held)
        except RedisError as error:
            self._back_off(error)

    def watch(self, slot: str, wait: Wait, waiting: Waiting) -> None:
        """Tells the pool until when this slot watches the calls that wait."""
        try:
            self._lanes.watch(slot, (wait.until_s - waiting.offset_s) * 1000, wait.watch)
        except RedisError as error:
            self._back_off(error)

    def reply(self, launch: Launch, outputs: Sequence[Any]) -> Mapping[str, Sequence[Reply]]:
        """Replies to the calls of a launch, in one message an api process. outputs: one a call.
        Returns the replies by api process."""
        by_process: dict[str, list[Reply]] = {}
        shares, device_us = _shares(launch), launch.device_us
        timed = _LaunchTiming(launch, self.worker)
        for entry, output, us in zip(launch.calls, outputs, device_us, strict=False):
            text, error = outcome(output)
            call = entry.owner
            timing = timed.of_call(entry, *shares[call.tenant])
            if entry.truncated and not error:
                timing["truncated"] = entry.truncated
            reply = Reply(
                call.id, text, error, entry.size, timing, call.tenant, call.job_class, us,
                entry.tokens, call.adapter, call.billed,
            )  # fmt: skip
            by_process.setdefault(call.reply_to, []).append(reply)
        deadline_s = max(entry.owner.deadline_ms for entry in launch.calls) / 1000
        until_s = min(deadline_s, clock.monotonic() + _REPLY_FOR_S)
        try:
            for process, replies in by_process.items():
                send = partial(self._lanes.reply, process, replies)
                self._send(send, len(replies), until_s)
        except Exception:  # on a pool's thread, where it would be lost
            _log.exception("%d calls remain unanswered", len(outputs))
        return by_process

    def logs(self, ids: Sequence[str]) -> list[CallLog] | None:
        """Returns the logs of the calls of the latest take. Returns None where Redis is away: the
        calls are put back once it answers."""
        try:
            return self._lanes.logs(ids)
        except RedisError as error:
            self._doubtful[self.token] = clock.monotonic() + _DOUBT_S
            self._back_off(error)
            return None

    def stream(self, progress: Sequence[Progress]) -> list[Call] | None:
        """Appends the deltas of a step to their logs, and sends them. Returns the calls that this
        worker has no more; None if Redis is away: they are to be sent again."""
        if clock.monotonic() < self._backoff_until_s:
            return None
        try:
            return self._lanes.stream(progress)
        except RedisError as error:
            self._back_off(error)
            return None

    def wait_for_dropped(self, timeout_s: float) -> list[str] | None:
        """Blocks until calls that this worker took are dropped, until it is notified by its name,
        or for `timeout_s`. Returns their ids; None if Redis is away."""
        if clock.monotonic() < self._backoff_until_s:
            return None
        try:
            return self._lanes.wait_for_dropped(self.worker, timeout_s)
        except RedisError as error:
            _log.debug("calls that were dropped can't be read: %s", error)
            return None

    def end(self, ends: Sequence[tuple[Call, Reply]]) -> None:
        """Ends calls that generate, with the replies of a step."""
        until_s = clock.monotonic() + _REPLY_FOR_S
        self._send(lambda: self._lanes.end(ends), len(ends), until_s)

    def _send(self, send: Callable[[], None], replies: int, until_s: float) -> None:
        """Sends until it succeeds: the api process ignores a reply that it has read before."""
        while True:
            try:
                return send()
            except RedisError as error:
                self._back_off(error)
                if clock.monotonic() + _PAUSE_S > until_s:
                    return _log.warning("%d calls remain unanswered", replies)
            clock.sleep(_PAUSE_S)

    def announce(
        self,
        *,
        ready: bool = True,
        alive: bool = True,
        profile: Profile | None = None,
        speed: Speed | None = None,
    ) -> None:
        """Announces this worker for another lease, or, not alive, that it leaves. ready: takes new
        calls; profile, speed: how long its launches take, also beside others."""
        packed = profile.pack() if profile else b""
        if self._spot:
            speed = replace(speed or SPOT_SPEED, spot=True)
        lease_s = self.lease_s if alive else 0
        try:
            self._lanes.announce(self.worker, lease_s, ready=ready, profile=packed, speed=speed)
        except RedisError as error:
            self._back_off(error)
        else:
            self._backoff_s, self._backoff_until_s = _BACKOFF_S, -inf

    def _back_off(self, error: RedisError) -> None:
        _log.warning("the call lanes in Redis can't be reached: %s", error)
        self._backoff_until_s = clock.monotonic() + self._backoff_s
        silent = isinstance(error, RedisTimeout)
        self._backoff_s = min(2 * self._backoff_s, _MAX_BACKOFF_S) if silent else _BACKOFF_S


def _shares(launch: Launch) -> dict[str, tuple[int, float]]:
    """Returns by tenant its number of entries in a launch, and their share of padding: a tenant
    learns nothing of the others in it."""
    sizes: dict[str, list[int]] = {}
    tenants = [call.owner.tenant for call in launch.calls]
    tenants += [item.owner.lease.tenant for item in launch.items]
    for tenant, entry in zip(tenants, launch.entries, strict=True):
        sizes.setdefault(tenant, []).append(entry.size)
    return {tenant: (len(its), _padding(launch, its)) for tenant, its in sizes.items()}


def _padding(launch: Launch, sizes: Sequence[int]) -> float:
    padded = LaunchSize.from_sizes(sizes, launch.bucket, pads=launch.pads).units
    return round(1 - sum(sizes) / max(1.0, padded), 3)


class _LaunchTiming:
    """Timing of a launch, rounded to microseconds, of which only little differs by call."""

    def __init__(self, launch: Launch, worker: str) -> None:
        ended_s = launch.started_s + launch.engine_s
        self._worker = worker
        self._closed_s, self._flush = launch.closed_s, launch.reason
        self._batch_ms = _ms(launch.started_s - launch.closed_s)
        self._engine_ms = _ms(launch.engine_s)
        self._post_ms = _ms(clock.monotonic() - ended_s)
        self._predicted_ms = _ms(launch.predicted_s)

    def of_call(self, entry: Entry, rows: int, padding: float) -> dict[str, Any]:
        """Returns the timing of one call. rows, padding: those that its tenant may know."""
        return {
            "preprocess_ms": _ms(entry.prepare_s),
            "queue_ms": _ms(self._closed_s - entry.arrived_s - entry.prepare_s),
            "batch_ms": self._batch_ms,
            "engine_ms": self._engine_ms,
            "post_ms": self._post_ms,
            "batch_size": rows,
            "flush": self._flush,
            "predicted_ms": self._predicted_ms,
            "padding": padding,
            "worker": self._worker,
        }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3) if seconds > 0 else 0.0
