"""Lanes in this process: for the simulator and for tests on their own clock."""

import threading
from collections.abc import Callable
from dataclasses import replace

from jobs.calls.lanes import ALONE, WORKER_LOST, LaneLook, Look, Refusal, Ticket
from jobs.calls.messages import Call, Reply


class MemoryLanes:
    """CallLanes without Redis. clock_ms: what the lanes call now."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self.replies: dict[str, list[list[Reply]]] = {}
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._lanes: dict[str, list[tuple[float, Call]]] = {}  # sorted by (due, arrival)
        self._taken: dict[str, tuple[str, Call]] = {}  # by id: the worker, and what it has in hand
        self._ready: dict[str, float] = {}
        self._alive: dict[str, float] = {}
        self._last_launch_ms = self._last_took_ms = 0.0

    def put(self, call: Call, *, target_ms: int, timeout_ms: int, most: int) -> Refusal | None:
        with self._lock:
            now = self._clock_ms()
            if not self._replicas(now):
                return "no_worker"
            if sum(map(len, self._lanes.values())) >= most:
                return "overloaded"
            stamped = replace(call, enqueued_ms=now, deadline_ms=now + timeout_ms)
            self._queue(stamped, now + min(target_ms, timeout_ms))
            return None

    def look(self) -> Look:
        with self._lock:
            now = self._clock_ms()
            lanes = [LaneLook(name, len(q), q[0][0]) for name, q in self._lanes.items()]
            replicas = self._replicas(now)
            return Look(now, lanes, self._last_launch_ms, self._last_took_ms, replicas)

    def take(self, ticket: Ticket) -> list[Call]:
        with self._lock:
            now = self._clock_ms()
            if self._last_launch_ms > ticket.launched_before_ms:
                return []
            waiting = self._lanes.pop(ticket.lane, [])
            taken: list[Call] = []
            while waiting and len(taken) < ticket.rows:
                _, call = waiting.pop(0)
                if call.deadline_ms > now:
                    taken.append(call)
            if waiting:
                self._lanes[ticket.lane] = waiting
            if taken:
                self._taken |= {call.id: (ticket.worker, call) for call in taken}
                self._last_launch_ms, self._last_took_ms = now, ticket.took_ms
                until = now + ticket.lease_ms  # taking is a sign of life
                self._alive[ticket.worker] = max(until, self._alive.get(ticket.worker, 0.0))
            return taken

    def drop(self, call: Call) -> None:
        with self._lock:
            self._forget(call.id)

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        with self._lock:
            self._reply(reply_to, replies)

    def announce(self, worker: str, ttl_s: float, *, ready: bool = True) -> None:
        with self._lock:
            until = self._clock_ms() + ttl_s * 1000
            self._alive[worker] = until
            self._ready[worker] = until if ready else 0.0

    def recover(self) -> int:
        with self._lock:
            now, recovered = self._clock_ms(), 0
            for worker, call in list(self._taken.values()):
                if call.deadline_ms <= now:
                    self._forget(call.id)
                elif self._alive.get(worker, 0.0) <= now:
                    recovered += 1
                    self._recover(call, now)
            return recovered

    def _recover(self, call: Call, now: float) -> None:
        if call.lane.startswith(ALONE):
            self._reply(call.reply_to, [Reply(call.id, None, WORKER_LOST, 0, {})])
        else:
            del self._taken[call.id]
            self._queue(replace(call, lane=ALONE + call.lane), now)

    def _queue(self, call: Call, due_ms: float) -> None:
        lane = self._lanes.setdefault(call.lane, [])
        lane.append((due_ms, call))
        lane.sort(key=lambda entry: entry[0])

    def _reply(self, reply_to: str, replies: list[Reply]) -> None:
        self.replies.setdefault(reply_to, []).append(replies)
        for reply in replies:
            self._forget(reply.id)

    def _forget(self, id: str) -> None:
        if self._taken.pop(id, None):
            return
        for name, waiting in list(self._lanes.items()):
            kept = [entry for entry in waiting if entry[1].id != id]
            if kept:
                self._lanes[name] = kept
            else:
                del self._lanes[name]

    def _replicas(self, now: float) -> int:
        return sum(until > now for until in self._ready.values())
