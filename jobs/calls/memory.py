"""Lanes in this process: for the simulator and for tests on their own clock."""

import threading
from bisect import insort
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from jobs.calls.accounting.usage_counter import UsageCounter
from jobs.calls.accounting.virtual_time import VirtualTime
from jobs.calls.accounting.waiting_tenants import WaitingTenants
from jobs.calls.lanes import (
    ALONE,
    PROBED_AFTER_MS,
    TOO_LATE,
    WANTED_MS,
    WORKER_LOST,
    LanesState,
    LaneState,
    Rejection,
    TenantShare,
    Terms,
    Ticket,
    mean_gap,
    stays_on_demand,
)
from jobs.calls.messages import Call, CallUsage, Delta, Reply
from jobs.calls.quotas import FREE, Estimate, Quota, QuotaUsage
from jobs.calls.streams.log import CallLog, Progress
from jobs.calls.streams.memory_log import MemoryLogs
from jobs.calls.tiers.tier import Speed
from jobs.calls.tiers.workers import MemoryWorkers


class MemoryLanes:
    """CallLanes without Redis. clock_ms: the lanes' clock; charged: shared by all models."""

    def __init__(self, clock_ms: Callable[[], float], charged: QuotaUsage | None = None) -> None:
        self.replies: dict[str, list[list[Reply]]] = {}
        self.deltas: dict[str, list[Sequence[Delta]]] = {}
        self._cancelled: dict[str, list[str]] = {}  # by worker
        self._clock_ms = clock_ms
        self._lock = threading.Condition()
        self._lanes: dict[str, list[tuple[float, Call]]] = {}  # sorted by due, then by arrival
        self._costs_ms: dict[str, float] = {}  # by lane: predicted time of its calls
        self._taken: dict[str, tuple[str, int, Call]] = {}  # by id: the worker, its token, the call
        self._workers = MemoryWorkers()
        self._turns, self._waiting = VirtualTime(), WaitingTenants()
        self._quotas = charged or QuotaUsage()
        self._flushes = Counter[str]()
        self._wanted_ms: float = -WANTED_MS
        self._last_launch_ms = self._last_took_ms = self._called_ms = self._gap_ms = 0.0
        self._watcher, self._watched_ms, self._watched_rows = "", 0.0, 0
        self.wakeups, self._woken = set[int](), set[str]()  # tiers, slots
        self._used, self._logs = UsageCounter(), MemoryLogs()

    def put(
        self,
        call: Call,
        *,
        target_ms: int,
        timeout_ms: int,
        most: int,
        terms: Terms,
        quota: Quota = FREE,
        output_tokens: int = 0,
    ) -> Rejection | None:
        """Implements `CallLanes.put`."""
        with self._lock:
            now = self._clock_ms()
            if not self._workers.count_ready(now):
                self._wanted_ms = now
                return Rejection("no_worker")
            call = self._workers.placed(call, terms)
            stays = stays_on_demand(call.lane)
            rows = len(self._lanes.get(call.lane, ()))
            share = self._waiting.share(call.tenant, call.weight)
            before = min(rows, int(share.before))
            others_ms, launch_ms = self._others_ms(call, share), terms.launch_ms(rows, before)
            at = now, terms, others_ms, rows, before
            wait_ms, late = self._workers.wait(*at, stays=stays)
            ends_ms = wait_ms + launch_ms
            size = Estimate(call.size, output_tokens)
            if exceeded := self._quotas.exceeded(quota, size, now, ends_ms):
                return Rejection("quota", exceeded.wait_ms, exceeded)
            if share.waiting >= most and share.has_its_share(most):
                return Rejection("overloaded", wait_ms)
            probes = not wait_ms and not rows and now > self._last_launch_ms + PROBED_AFTER_MS
            if late and not probes:
                return Rejection("late", ends_ms - terms.one_ms)
            if self._called_ms:
                self._gap_ms = mean_gap(self._gap_ms, now - self._called_ms)
            self._called_ms = now
            if stays or now >= self._watched_ms or rows + 1 >= self._watched_rows:
                self._wake_up()
            stamped = replace(call, enqueued_ms=now, deadline_ms=now + timeout_ms)
            self._quotas.charge(quota, size, now, call.id, stamped.deadline_ms)
            self._queue(stamped, now + min(target_ms, timeout_ms), terms.cost_ms(rows))
            return None

    def look(self, slot: str, least_ms: Mapping[int, float] | None = None) -> LanesState:
        """Implements `CallLanes.look`."""
        with self._lock:
            now = self._clock_ms()
            self._workers.busy.pop(slot, None)
            seen = self._workers.seen(slot, self._lanes, least_ms or {})
            lanes = [self._lane_state(name, now + ms) for name, ms in seen]
            if any(lane.urgent for lane in lanes):
                self._wake_up(0)
            lanes = [lane for lane in lanes if lane.rows]
            launch = self._last_launch_ms, self._last_took_ms
            calls = self._called_ms, self._gap_ms
            watch = self._watched_ms, self._watcher
            busy = {name: until for name, until in self._workers.busy.items() if until > now}
            ready, tiers = self._workers.count_ready(now), self._workers.tiers
            return LanesState(now, lanes, *launch, *calls, *watch, ready, busy, tiers)

    def take(self, ticket: Ticket) -> list[Call] | None:
        """Implements `CallLanes.take`."""
        with self._lock:
            now = self._clock_ms()
            if self._last_launch_ms > ticket.launched_before_ms:
                return None
            taken = self._choose(ticket, now) if ticket.rows else []
            if taken:
                self._taken |= {call.id: (ticket.worker, ticket.token, call) for call in taken}
                self._flushes[ticket.reason] += 1
                until = now + ticket.lease_ms  # taking is a sign of life
                alive = self._workers.alive
                alive[ticket.worker] = max(until, alive.get(ticket.worker, 0.0))
            if taken or not ticket.rows:
                self._last_launch_ms, self._last_took_ms = now, ticket.took_ms
                if self._workers.ready.get(ticket.worker):
                    self._workers.busy[ticket.slot] = now + ticket.took_ms
                self._watched_ms = 0.0
                if self._lanes:
                    self._wake_up()
            return [_as_taken(call, ticket) for call in taken]

    def abort(self, worker: str, token: int = 0, *, alone: bool = False) -> None:
        """Implements `CallLanes.abort`."""
        with self._lock:
            for id, (its_worker, its_token, call) in list(self._taken.items()):
                if its_worker == worker and token in (0, its_token):
                    del self._taken[id]
                    if alone and not call.lane.startswith(ALONE):
                        call = replace(call, lane=ALONE + call.lane)
                    self._queue(call, self._clock_ms(), 0.0)
                    self._wake_up()

    def watch(self, slot: str, until_ms: float, rows: int) -> None:
        """Implements `CallLanes.watch`."""
        with self._lock:
            self._watcher, self._watched_ms, self._watched_rows = slot, until_ms, rows

    def wait_for_wakeup(self, slot: str, timeout_s: float, tier: int = 0) -> None:
        """Implements `CallLanes.wait_for_wakeup`."""
        with self._lock:
            self._lock.wait_for(lambda: tier in self.wakeups or slot in self._woken, timeout_s)
            if slot in self._woken:
                self._woken.remove(slot)
            else:
                self.wakeups.discard(tier)

    def ring(self, tier: int) -> None:
        """Implements `CallLanes.ring`."""
        with self._lock:
            self._wake_up(tier)

    def notify(self, slot: str) -> None:
        """Implements `CallLanes.notify`."""
        with self._lock:
            self._woken.add(slot)
            self._lock.notify_all()

    def hold_prefixes(self, *_: object) -> None:
        """Implements `CallLanes.hold_prefixes`: one cache is like another here."""

    def drop(self, call: Call) -> None:
        """Implements `CallLanes.drop`."""
        with self._lock:
            if taken := self._taken.get(call.id):
                self._cancelled.setdefault(taken[0], []).append(call.id)
                self._lock.notify_all()
            else:
                self._quotas.settle(call.id, 0, self._clock_ms())
            self._forget(call.id)

    def wait_for_dropped(self, worker: str, timeout_s: float) -> list[str]:
        """Implements `CallLanes.wait_for_dropped`."""
        with self._lock:
            self._lock.wait_for(
                lambda: worker in self._cancelled or worker in self._woken, timeout_s
            )
            self._woken.discard(worker)
            return self._cancelled.pop(worker, [])

    def stream(self, progress: Sequence[Progress]) -> list[Call]:
        """Implements `CallLanes.stream`."""
        with self._lock:
            held, lost = list[Progress](), list[Call]()
            for one in progress:
                if self._holds(one.call):
                    held.append(one)
                else:
                    lost.append(one.call)
            sent: dict[str, list[Delta]] = {}
            for one in held:
                if self._logs.append(one) and one.call.stream:
                    sent.setdefault(one.call.reply_to, []).append(one.delta)
            for reply_to, its in sent.items():
                self.deltas.setdefault(reply_to, []).append(its)
            return lost

    def logs(self, ids: Sequence[str]) -> list[CallLog]:
        """Implements `CallLanes.logs`."""
        with self._lock:
            return self._logs.read(ids)

    def end(self, ends: Sequence[tuple[Call, Reply]]) -> None:
        """Implements `CallLanes.end`."""
        with self._lock:
            for call, reply in ends:
                if self._holds(call):
                    self._send(call.reply_to, [reply])
                    self._logs.end(call.id, reply if call.stream else None)
                    self._count(reply)
                elif not self._knows(call.id) and self._count(reply):
                    self._logs.end(call.id, None)

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        """Implements `CallLanes.reply`."""
        with self._lock:
            self._send(reply_to, replies)
            for reply in replies:
                self._count(reply)

    def usage(self, *, unfinished: bool = False) -> list[CallUsage]:
        """Implements `CallLanes.usage`."""
        with self._lock:
            return self._used.usage(self._clock_ms(), unfinished=unfinished)

    def forget_usage(self, used: Sequence[CallUsage]) -> None:
        """Implements `CallLanes.forget_usage`."""
        with self._lock:
            self._used.forget(used)

    def announce(
        self, worker: str, ttl_s: float, *,
        ready: bool = True, profile: bytes = b"", speed: Speed | None = None,
    ) -> None:  # fmt: skip
        """Implements `CallLanes.announce`."""
        with self._lock:
            now = self._clock_ms()
            before = self._workers.tiers
            self._workers.announce(now, worker, ttl_s, ready, profile, speed)
            if not ttl_s and self._watcher.startswith(f"{worker}/"):
                self._watched_ms = 0.0
            if self._workers.tiers != before:  # slots wait for wake-ups of the tiers that were
                self.wakeups |= set(range(len(before)))
            if self._workers.tiers != before or (not ttl_s and self._lanes):
                self._wake_up()

    def profiles(self) -> list[bytes]:
        """Implements `CallLanes.profiles`."""
        with self._lock:
            return self._workers.profiles()

    def wanted(self) -> bool:
        """Implements `CallLanes.wanted`."""
        now = self._clock_ms()
        waits = any(self._lanes.values()) and not self._workers.count_ready(now)
        return waits or self._wanted_ms + WANTED_MS > now

    def flushes(self) -> dict[str, int]:
        """Implements `CallLanes.flushes`."""
        return dict(self._flushes)

    def recover(self, given_up: Collection[str] = ()) -> int:
        """Implements `CallLanes.recover`."""
        with self._lock:
            now, recovered = self._clock_ms(), 0
            for worker, token, call in list(self._taken.values()):
                lives = self._workers.alive.get(worker, 0.0) > now
                if call.deadline_ms <= now:
                    self._forget(call.id)
                elif not lives or f"{worker}#{token}" in given_up:
                    recovered += 1
                    self._recover(call, now)
            return recovered

    def _choose(self, ticket: Ticket, now: float) -> list[Call]:
        """Pops the calls of a ticket, and those that are late for it."""
        due = now + ticket.least_ms if ticket.least_ms else -inf
        waiting = [call for at, call in self._lanes.get(ticket.lane, ()) if at >= due]
        latest = now + max(0.0, ticket.needs_ms)
        taken, late = self._turns.choose(waiting, ticket, lambda call: call.deadline_ms <= latest)
        for call in late:
            self._quotas.ended(call.id)
            self._quotas.settle(call.id, 0, now)
            if call.deadline_ms > now:
                self._send(call.reply_to, [Reply(call.id, None, TOO_LATE, 0, {})])
        self._remove(ticket.lane, {call.id for call in (*taken, *late)})
        if not self._lanes:
            self._turns.clear()
        return taken

    def _turn(self, lane: str) -> float:
        """Returns the least virtual time of the tenants with calls in a lane."""
        if len(self._lanes) == 1:
            return 0.0
        return self._turns.turn(call.tenant for _, call in self._lanes[lane])

    def _recover(self, call: Call, now: float) -> None:
        own, generated = call.lane.removeprefix(ALONE), self._logs.generated(call.id)
        if call.lane == own or generated:
            del self._taken[call.id]
            self._queue(replace(call, lane=own if generated else ALONE + own), now, 0.0)
            self._wake_up()
        else:
            reply = Reply(call.id, None, WORKER_LOST, 0, {})
            self._send(call.reply_to, [reply])
            self._logs.end(call.id, reply if call.stream else None)
            self._forget(call.id)
            self._quotas.settle(call.id, 0, now)

    def _queue(self, call: Call, due_ms: float, cost_ms: float) -> None:
        lane = self._lanes.setdefault(call.lane, [])
        insort(lane, (due_ms, call), key=lambda entry: entry[0])
        self._costs_ms[call.lane] = self._costs_ms.get(call.lane, 0.0) + cost_ms
        self._waiting.add(call.tenant, call.weight)

    def _others_ms(self, call: Call, share: TenantShare) -> float:
        """Returns the predicted time of other lanes' calls that come before a new one."""
        others_ms = sum(self._costs_ms.values()) - self._costs_ms.get(call.lane, 0.0)
        return others_ms * share.before / share.waiting if share.waiting else 0.0

    def _wake_up(self, *tiers: int) -> None:
        """Wakes a slot of each of these tiers; of all where none is named."""
        self.wakeups |= set(tiers or range(max(1, len(self._workers.tiers))))
        self._lock.notify_all()

    def _lane_state(self, name: str, from_ms: float) -> LaneState:
        """Returns the state of a lane without the calls that are due before a time."""
        queue = self._lanes[name]
        seen = [entry for entry in queue if entry[0] >= from_ms]
        units, due_ms = sum(call.size for _, call in seen), seen[0][0] if seen else 0.0
        return LaneState(name, len(seen), units, due_ms, self._turn(name), len(queue) - len(seen))

    def _remove(self, name: str, ids: set[str]) -> None:
        """Removes calls from their lane, with their share of its cost."""
        lane = self._lanes.get(name, [])
        remaining = [entry for entry in lane if entry[1].id not in ids]
        for _, call in lane:
            if call.id in ids:
                self._waiting.remove(call.tenant)
        if remaining:
            self._costs_ms[name] *= len(remaining) / len(lane)
            self._lanes[name] = remaining
        elif lane:
            del self._lanes[name], self._costs_ms[name]

    def _send(self, reply_to: str, replies: list[Reply]) -> None:
        self.replies.setdefault(reply_to, []).append(replies)

    def _count(self, reply: Reply) -> bool:
        """Forgets a call that has ended; returns True if its reply was counted."""
        known, now = self._forget(reply.id), self._clock_ms()
        counted = self._used.count(reply, now, known=known)
        if counted and reply.tokens:
            self._quotas.settle(reply.id, reply.tokens.input + reply.tokens.output, now)
        return counted

    def _holds(self, call: Call) -> bool:
        worker, token, _ = self._taken.get(call.id) or ("", 0, None)
        return f"{worker}#{token}" == call.holder

    def _knows(self, id: str) -> bool:
        return id in self._taken or any(
            call.id == id for lane in self._lanes.values() for _, call in lane
        )

    def _forget(self, id: str) -> bool:
        """Forgets a call; returns True if it was known."""
        self._quotas.ended(id)
        if self._taken.pop(id, None):
            return True
        for name in list(self._lanes):
            if any(call.id == id for _, call in self._lanes[name]):
                self._remove(name, {id})
                return True
        return False


def _as_taken(call: Call, ticket: Ticket) -> Call:
    enqueued_ms = call.enqueued_ms + ticket.offset_ms
    deadline_ms = call.deadline_ms + ticket.offset_ms
    return replace(call, enqueued_ms=enqueued_ms, deadline_ms=deadline_ms, holder=ticket.holder)
