"""The worker's side of the call lanes, on the worker's own clock. Redis may be away: then there
are no calls, and the device goes on with its items."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from redis import RedisError

from jobs import clock
from jobs.calls.lanes import CallLanes, Ticket
from jobs.calls.messages import Call, Reply
from jobs.calls.profile import Profile
from workers.items.results import outcome
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.policy import Wait
from workers.scheduler.snapshot import Waiting

_log = logging.getLogger(__name__)
_REST_S = 1.0  # how long Redis is left alone after it failed
_OFFERED_S = 5.0  # how long replies are offered to a Redis that is away
_PAUSE_S = 0.2
_DOUBT_S = 10.0  # for which a take that had no answer may still be carried out


class CallPuller:
    """Looks, takes and replies for one model of one worker, which says at least once in
    `lease_s` that it is there. slots: its launches at a time."""

    def __init__(self, lanes: CallLanes, worker: str, lease_s: float, slots: int = 1) -> None:
        self._lanes, self.worker, self.lease_s, self._slots = lanes, worker, lease_s, slots
        self._rest_until_s = -inf
        self._hand = 0
        self._doubtful: dict[int, float] = {}  # hands, and until when

    def look(self, slot: str) -> Waiting:
        """What waits, for a slot that is idle."""
        if clock.monotonic() < self._rest_until_s:
            return Waiting()
        try:
            self._disown()
            look = self._lanes.look(slot)
        except RedisError as error:
            self._rest(error)
            return Waiting()
        return Waiting.of(look, slot, self._slots, clock.monotonic() - look.now_ms / 1000)

    def take(self, ticket: Ticket, waiting: Waiting) -> list[Call] | None:
        """Pops calls, with their times on our clock, in milliseconds; None where the pool launched
        since `waiting`. What Redis may have given without our hearing of it is put back later."""
        self._hand += 1
        try:
            taken = self._lanes.take(replace(ticket, token=self._hand))
        except RedisError as error:
            self._doubtful[self._hand] = clock.monotonic() + _DOUBT_S
            self._rest(error)
            return None
        return taken and [_on_our_clock(call, waiting.offset_s * 1000) for call in taken]

    def _disown(self) -> None:
        for hand, until_s in list(self._doubtful.items()):
            self._lanes.abort(self.worker, hand)
            if clock.monotonic() > until_s:
                del self._doubtful[hand]

    def wait_for_wakeup(self, slot: str, timeout_s: float) -> bool:
        """Blocks until there may be calls, until `wake`, or for so long; False: Redis is away."""
        if clock.monotonic() < self._rest_until_s:
            return False
        try:
            self._lanes.wait_for_wakeup(slot, timeout_s)
        except RedisError as error:
            self._rest(error)
            return False
        return True

    def notify(self, slot: str) -> None:
        """For who has something to do for a slot that hears."""
        try:
            self._lanes.notify(slot)
        except RedisError as error:
            self._rest(error)

    def watch(self, slot: str, wait: Wait, waiting: Waiting) -> None:
        """Tells the pool until when this slot waits for the calls that are here."""
        try:
            self._lanes.watch(slot, (wait.until_s - waiting.offset_s) * 1000, wait.watch)
        except RedisError as error:
            self._rest(error)

    def reply(self, launch: Launch, outputs: Sequence[Any]) -> None:
        """Answers the calls of a launch (outputs: theirs, in order), a message an api process."""
        by_asker: dict[str, list[Reply]] = {}
        own, device_us = _own(launch), launch.device_us
        for entry, output, us in zip(launch.calls, outputs, device_us, strict=False):
            text, error = outcome(output)
            call, timing = entry.owner, _timing(launch, entry, own[entry.owner.tenant])
            reply = Reply(
                call.id, text, error, entry.size, timing, call.tenant, call.job_class, us
            )  # fmt: skip
            by_asker.setdefault(entry.owner.reply_to, []).append(reply)
        wanted_s = max(entry.owner.deadline_ms for entry in launch.calls) / 1000
        until_s = min(wanted_s, clock.monotonic() + _OFFERED_S)
        try:
            for asker, replies in by_asker.items():
                self._send(asker, replies, until_s)
        except Exception:  # on a pool's thread: nobody else would hear of it
            _log.exception("%d calls go unanswered", len(outputs))

    def _send(self, asker: str, replies: list[Reply], until_s: float) -> None:
        """Again and again while Redis is away: what is sent twice is read once."""
        while True:
            try:
                return self._lanes.reply(asker, replies)
            except RedisError as error:
                self._rest(error)
                if clock.monotonic() + _PAUSE_S > until_s:
                    return _log.warning("%d calls go unanswered", len(replies))
            clock.sleep(_PAUSE_S)

    def announce(
        self, *, ready: bool = True, alive: bool = True, profile: Profile | None = None
    ) -> None:
        """This worker is there for another lease, and is ready for calls or not; or it leaves.
        profile: how long its launches take."""
        packed = profile.pack() if profile else b""
        lease_s = self.lease_s if alive else 0
        try:
            self._lanes.announce(self.worker, lease_s, ready=ready, profile=packed)
        except RedisError as error:
            self._rest(error)

    def _rest(self, error: RedisError) -> None:
        _log.warning("the call lanes are out of reach: %s", error)
        self._rest_until_s = clock.monotonic() + _REST_S


def _on_our_clock(call: Call, offset_ms: float) -> Call:
    enqueued_ms, deadline_ms = call.enqueued_ms + offset_ms, call.deadline_ms + offset_ms
    return replace(call, enqueued_ms=enqueued_ms, deadline_ms=deadline_ms)


def _own(launch: Launch) -> dict[str, tuple[int, float]]:
    """How many entries each tenant has in a launch, and how much of them was padding: who shares
    it with others isn't told of them."""
    sizes: dict[str, list[int]] = {}
    tenants = [call.owner.tenant for call in launch.calls]
    tenants += [item.owner.lease.tenant for item in launch.items]
    for tenant, entry in zip(tenants, launch.entries, strict=True):
        sizes.setdefault(tenant, []).append(entry.size)
    return {tenant: (len(own), _padding(launch, own)) for tenant, own in sizes.items()}


def _padding(launch: Launch, sizes: Sequence[int]) -> float:
    padded = LaunchSize.of(sizes, launch.bucket, pads=launch.pads).units
    return round(1 - sum(sizes) / max(1.0, padded), 3)


def _timing(launch: Launch, entry: Entry, own: tuple[int, float]) -> dict[str, Any]:
    def ms(since_s: float, until_s: float) -> float:
        return round(max(0.0, until_s - since_s) * 1000, 3)

    ended_s = launch.started_s + launch.engine_s
    return {
        "preprocess_ms": round(entry.prepare_s * 1000, 3),
        "queue_ms": ms(entry.arrived_s + entry.prepare_s, launch.closed_s),
        "batch_ms": ms(launch.closed_s, launch.started_s),
        "engine_ms": ms(launch.started_s, ended_s),
        "post_ms": ms(ended_s, clock.monotonic()),
        "batch_size": own[0],
        "flush": launch.reason,
        "predicted_ms": round(launch.predicted_s * 1000, 3),
        "padding": own[1],
    }
