"""Lanes in this process: for the simulator and for tests on their own clock."""

import threading
from collections.abc import Callable
from dataclasses import replace

from jobs.calls.lanes import LaneLook, Look, Refusal, Ticket
from jobs.calls.messages import Call, Reply


class MemoryLanes:
    """CallLanes without Redis. clock_ms: what the lanes call now."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self.replies: dict[str, list[list[Reply]]] = {}
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._lanes: dict[str, list[tuple[float, Call]]] = {}  # sorted by (due, arrival)
        self._ready: dict[str, float] = {}
        self._last_launch_ms = self._last_took_ms = 0.0

    def put(self, call: Call, *, target_ms: int, timeout_ms: int, most: int) -> Refusal | None:
        with self._lock:
            now = self._clock_ms()
            if not self._replicas(now):
                return "no_worker"
            if sum(map(len, self._lanes.values())) >= most:
                return "overloaded"
            stamped = replace(call, enqueued_ms=now, deadline_ms=now + timeout_ms)
            lane = self._lanes.setdefault(call.lane, [])
            lane.append((now + min(target_ms, timeout_ms), stamped))
            lane.sort(key=lambda entry: entry[0])
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
                self._last_launch_ms, self._last_took_ms = now, ticket.took_ms
            return taken

    def drop(self, call: Call) -> None:
        with self._lock:
            waiting = [e for e in self._lanes.pop(call.lane, []) if e[1].id != call.id]
            if waiting:
                self._lanes[call.lane] = waiting

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        with self._lock:
            self.replies.setdefault(reply_to, []).append(replies)

    def announce(self, worker: str, ttl_s: float) -> None:
        with self._lock:
            self._ready[worker] = self._clock_ms() + ttl_s * 1000

    def _replicas(self, now: float) -> int:
        return sum(until > now for until in self._ready.values())
