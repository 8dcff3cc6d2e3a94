"""Lanes in this process: for the simulator and for tests on their own clock."""

import threading
from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from jobs.calls.accounting.usage_counter import UsageCounter
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
)
from jobs.calls.messages import Call, CallUsage, Delta, Reply
from jobs.calls.quotas import FREE, Estimate, Quota, QuotaUsage


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
        self._ready: dict[str, float] = {}
        self._alive: dict[str, float] = {}
        self._busy: dict[str, float] = {}
        self._served: dict[str, float] = {}  # by tenant: its virtual time
        self._queued: dict[str, tuple[int, float]] = {}  # by tenant: its calls, its weight
        self._quotas = charged or QuotaUsage()
        self._flushes: Counter[str] = Counter()
        self._profile = b""
        self._wanted_ms: float = -WANTED_MS
        self._last_launch_ms = self._last_took_ms = self._called_ms = self._gap_ms = 0.0
        self._watcher, self._watched_ms, self._watched_rows = "", 0.0, 0
        self.wakeup_pending = False
        self._woken: set[str] = set()
        self._used = UsageCounter()

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
            replicas = self._replicas(now)
            if not replicas:
                self._wanted_ms = now
                return Rejection("no_worker")
            rows, share = len(self._lanes.get(call.lane, ())), self._tenant_share(call)
            before = min(rows, int(share.before))
            wait_ms = terms.wait_ms(
                self._free_ms(now, replicas * terms.slots), self._others_ms(call, share), before
            )
            ends_ms = wait_ms + terms.launch_ms(rows, before)
            size = Estimate(call.size, output_tokens)
            if exceeded := self._quotas.exceeded(quota, size, now, ends_ms):
                return Rejection("quota", exceeded.wait_ms, exceeded)
            if share.waiting >= most and share.has_its_share(most):
                return Rejection("overloaded", wait_ms)
            probes = not wait_ms and not rows and now > self._last_launch_ms + PROBED_AFTER_MS
            if ends_ms > terms.allowed_ms and not probes:
                return Rejection("late", ends_ms - terms.one_ms)
            if self._called_ms:
                self._gap_ms = mean_gap(self._gap_ms, now - self._called_ms)
            self._called_ms = now
            if now >= self._watched_ms or rows + 1 >= self._watched_rows:
                self._wake_up()
            stamped = replace(call, enqueued_ms=now, deadline_ms=now + timeout_ms)
            self._quotas.charge(quota, size, now, call.id, stamped.deadline_ms)
            self._queue(stamped, now + min(target_ms, timeout_ms), terms.cost_ms(rows))
            return None

    def look(self, slot: str) -> LanesState:
        """Implements `CallLanes.look`."""
        with self._lock:
            now = self._clock_ms()
            self._busy.pop(slot, None)
            lanes = [
                LaneState(name, len(q), sum(call.size for _, call in q), q[0][0], self._turn(name))
                for name, q in self._lanes.items()
            ]
            launch = self._last_launch_ms, self._last_took_ms
            calls = self._called_ms, self._gap_ms
            watch = self._watched_ms, self._watcher
            busy = {name: until for name, until in self._busy.items() if until > now}
            return LanesState(now, lanes, *launch, *calls, *watch, self._replicas(now), busy)

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
                self._alive[ticket.worker] = max(until, self._alive.get(ticket.worker, 0.0))
            if taken or not ticket.rows:
                self._last_launch_ms, self._last_took_ms = now, ticket.took_ms
                if self._ready.get(ticket.worker):
                    self._busy[ticket.slot] = now + ticket.took_ms
                self._watched_ms = 0.0
                if self._lanes:
                    self._wake_up()
            return [_on_takers_clock(call, ticket.offset_ms) for call in taken]

    def abort(self, worker: str, token: int, *, alone: bool = False) -> None:
        """Implements `CallLanes.abort`."""
        with self._lock:
            for id, (its_worker, its_token, call) in list(self._taken.items()):
                if (its_worker, its_token) == (worker, token):
                    del self._taken[id]
                    if alone and not call.lane.startswith(ALONE):
                        call = replace(call, lane=ALONE + call.lane)
                    self._queue(call, self._clock_ms(), 0.0)
                    self._wake_up()

    def watch(self, slot: str, until_ms: float, rows: int) -> None:
        """Implements `CallLanes.watch`."""
        with self._lock:
            self._watcher, self._watched_ms, self._watched_rows = slot, until_ms, rows

    def wait_for_wakeup(self, slot: str, timeout_s: float) -> None:
        """Implements `CallLanes.wait_for_wakeup`."""
        with self._lock:
            self._lock.wait_for(lambda: self.wakeup_pending or slot in self._woken, timeout_s)
            if slot in self._woken:
                self._woken.remove(slot)
            else:
                self.wakeup_pending = False

    def notify(self, slot: str) -> None:
        """Implements `CallLanes.notify`."""
        with self._lock:
            self._woken.add(slot)
            self._lock.notify_all()

    def drop(self, call: Call) -> None:
        """Implements `CallLanes.drop`."""
        with self._lock:
            if taken := self._taken.get(call.id):
                self._cancelled.setdefault(taken[0], []).append(call.id)
            else:
                self._quotas.settle(call.id, 0, self._clock_ms())
            self._forget(call.id)

    def stream(self, worker: str, deltas: Mapping[str, Sequence[Delta]]) -> list[str]:
        """Implements `CallLanes.stream`."""
        with self._lock:
            for reply_to, its in deltas.items():
                self.deltas.setdefault(reply_to, []).append(its)
            return self._cancelled.pop(worker, [])

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        """Implements `CallLanes.reply`."""
        with self._lock:
            self._send(reply_to, replies)
            for reply in replies:
                known, now = self._forget(reply.id), self._clock_ms()
                if self._used.count(reply, now, known=known) and reply.tokens:
                    self._quotas.settle(reply.id, reply.tokens.input + reply.tokens.output, now)

    def usage(self, *, unfinished: bool = False) -> list[CallUsage]:
        """Implements `CallLanes.usage`."""
        with self._lock:
            return self._used.usage(self._clock_ms(), unfinished=unfinished)

    def forget_usage(self, used: Sequence[CallUsage]) -> None:
        """Implements `CallLanes.forget_usage`."""
        with self._lock:
            self._used.forget(used)

    def announce(
        self, worker: str, ttl_s: float, *, ready: bool = True, profile: bytes = b""
    ) -> None:
        """Implements `CallLanes.announce`."""
        with self._lock:
            until = self._clock_ms() + ttl_s * 1000
            self._alive[worker] = until
            self._ready[worker] = until if ready else 0.0
            self._profile = profile or self._profile
            if not (ready and ttl_s):
                slots = [slot for slot in self._busy if slot.startswith(f"{worker}/")]
                for slot in slots:
                    del self._busy[slot]
            if not ttl_s:
                if self._watcher.startswith(f"{worker}/"):
                    self._watched_ms = 0.0
                if self._lanes:
                    self._wake_up()

    def profile(self) -> bytes:
        """Implements `CallLanes.profile`."""
        return self._profile

    def wanted(self) -> bool:
        """Implements `CallLanes.wanted`."""
        return self._wanted_ms + WANTED_MS > self._clock_ms()

    def flushes(self) -> dict[str, int]:
        """Implements `CallLanes.flushes`."""
        return dict(self._flushes)

    def recover(self) -> int:
        """Implements `CallLanes.recover`."""
        with self._lock:
            now, recovered = self._clock_ms(), 0
            for worker, _, call in list(self._taken.values()):
                if call.deadline_ms <= now:
                    self._forget(call.id)
                elif self._alive.get(worker, 0.0) <= now:
                    recovered += 1
                    self._recover(call, now)
            return recovered

    def _choose(self, ticket: Ticket, now: float) -> list[Call]:
        """Chooses calls by start-time fair queueing (Goyal et al. 1996).

        The tenant with the least virtual time is next; one that comes back starts where the
        others are.
        """
        queues: dict[str, list[Call]] = {}
        for _, call in self._lanes.get(ticket.lane, ()):
            queues.setdefault(call.tenant, []).append(call)
        start = self._served.get("", 0.0)
        times = {tenant: max(self._served.get(tenant, 0.0), start) for tenant in queues}
        for name in ticket.without:
            queues.pop(name, None)
        if ticket.bulk != "mixed" and queues:
            first = min(queues, key=lambda name: times[name])
            if ticket.bulk == "none" or not _is_bulk(queues[first], ticket):
                queues = {
                    name: queue for name, queue in queues.items() if not _is_bulk(queue, ticket)
                }
        taken: list[Call] = []
        removed: list[Call] = []
        units = 0
        while queues and len(taken) < ticket.rows:
            tenant = min(queues, key=lambda name: times[name])
            call = queues[tenant][0]
            late = call.deadline_ms <= now + max(0.0, ticket.needs_ms)
            if not late:
                if ticket.units and taken and units + call.size > ticket.units:
                    break
                units += call.size
                self._served[""] = times[tenant]
                times[tenant] += (max(1, call.size) if ticket.sized else 1) / call.weight
                taken.append(call)
            else:
                self._quotas.ended(call.id)
                self._quotas.settle(call.id, 0, now)
                if call.deadline_ms > now:
                    self._send(call.reply_to, [Reply(call.id, None, TOO_LATE, 0, {})])
            removed.append(call)
            queues[tenant].pop(0)
            if not queues[tenant]:
                del queues[tenant]
        self._served |= times
        self._remove(ticket.lane, {call.id for call in removed})
        if not self._lanes:
            self._served.clear()  # no tenant has to wait
        return taken

    def _turn(self, lane: str) -> float:
        """Returns the least virtual time of the tenants with calls in a lane."""
        if len(self._lanes) == 1:
            return 0.0
        start = self._served.get("", 0.0)
        times = (self._served.get(call.tenant, 0.0) for _, call in self._lanes[lane])
        return max(start, min(times))

    def _recover(self, call: Call, now: float) -> None:
        if call.lane.startswith(ALONE):
            self._reply(call.reply_to, [Reply(call.id, None, WORKER_LOST, 0, {})])
            self._quotas.settle(call.id, 0, now)
        else:
            del self._taken[call.id]
            self._queue(replace(call, lane=ALONE + call.lane), now, 0.0)
            self._wake_up()

    def _queue(self, call: Call, due_ms: float, cost_ms: float) -> None:
        lane = self._lanes.setdefault(call.lane, [])
        insort(lane, (due_ms, call), key=lambda entry: entry[0])
        self._costs_ms[call.lane] = self._costs_ms.get(call.lane, 0.0) + cost_ms
        has, _ = self._queued.get(call.tenant, (0, 0.0))
        self._queued[call.tenant] = has + 1, call.weight

    def _tenant_share(self, call: Call) -> TenantShare:
        """Returns the position of a new call's tenant."""
        own, counted = self._queued.get(call.tenant, (0, 0.0))
        waiting = sum(calls for calls, _ in self._queued.values())
        weights = sum(weight for _, weight in self._queued.values()) - counted + call.weight
        return TenantShare(waiting, own, call.weight, weights)

    def _others_ms(self, call: Call, share: TenantShare) -> float:
        """Returns the predicted time of other lanes' calls that come before a new one."""
        others_ms = sum(self._costs_ms.values()) - self._costs_ms.get(call.lane, 0.0)
        return others_ms * share.before / share.waiting if share.waiting else 0.0

    def _wake_up(self) -> None:
        self.wakeup_pending = True
        self._lock.notify_all()

    def _remove(self, name: str, ids: set[str]) -> None:
        """Removes calls from their lane, with their share of its cost."""
        lane = self._lanes.get(name, [])
        remaining = [entry for entry in lane if entry[1].id not in ids]
        for _, call in lane:
            if call.id in ids:
                self._unqueue(call.tenant)
        if remaining:
            self._costs_ms[name] *= len(remaining) / len(lane)
            self._lanes[name] = remaining
        elif lane:
            del self._lanes[name], self._costs_ms[name]

    def _unqueue(self, tenant: str) -> None:
        calls, weight = self._queued[tenant]
        if calls > 1:
            self._queued[tenant] = calls - 1, weight
        else:
            del self._queued[tenant]

    def _send(self, reply_to: str, replies: list[Reply]) -> None:
        self.replies.setdefault(reply_to, []).append(replies)

    def _reply(self, reply_to: str, replies: list[Reply]) -> None:
        self._send(reply_to, replies)
        for reply in replies:
            self._forget(reply.id)

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

    def _replicas(self, now: float) -> int:
        return sum(until > now for until in self._ready.values())

    def _free_ms(self, now: float, slots: int) -> list[float]:
        """Returns the predicted time until each of so many slots is free, ascending."""
        busy = sorted(until - now for until in self._busy.values() if until > now)
        return ([0.0] * (slots - len(busy)) + busy)[-slots:]


def _on_takers_clock(call: Call, offset_ms: float) -> Call:
    enqueued_ms, deadline_ms = call.enqueued_ms + offset_ms, call.deadline_ms + offset_ms
    return replace(call, enqueued_ms=enqueued_ms, deadline_ms=deadline_ms)


def _is_bulk(queue: Sequence[Call], ticket: Ticket) -> bool:
    """Returns True for calls that are more than a launch."""
    units = sum(call.size for call in queue)
    return len(queue) > ticket.rows / 2 or bool(ticket.units and units > ticket.units / 4)
