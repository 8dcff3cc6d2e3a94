"""What this process knows of calls that ended, written to Redis about once a second: all of them
while there are few, else those that failed and the slowest."""

import asyncio
import heapq
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from redis.exceptions import RedisError
from starlette.requests import ClientDisconnect

from api.gateway.gateway import InferenceRequest
from api.gateway.redis_pipeline import RedisPipeline
from jobs import clock
from jobs.calls.records import RETENTION_S, CallRecord, record_key
from jobs.errors import MillraceError

_EVERY_S = 0.5
_A_SECOND = 10.0
"""Records a process may write in the long run: half a kilobyte each, for an hour, are 18 MB."""
_MOST = 300.0
"""At once, after a quiet half minute: a few milliseconds of the loop."""
_MARGIN_S = 120
"""A record is there for an hour, though its minute began earlier."""


class _Ended(NamedTuple):
    """ended_s: on the process's clock."""

    asked: InferenceRequest
    outcome: str
    timing: Mapping[str, Any]
    ended_s: float

    @property
    def total_ms(self) -> float:
        asked = self.asked
        left_ms = (asked.until_s - self.ended_s) * 1000
        return asked.timeout_ms - asked.waited_ms - left_ms

    @property
    def badness(self) -> float:
        """The share of its target that it took; what failed is worse than any."""
        took = self.total_ms / max(1, self.asked.tried[-1].model.target_ms)
        return took if self.outcome == "succeeded" else inf

    def record(self, now_s: float, at: float) -> CallRecord:
        """now_s, at: one moment on the process's clock, and as Unix time."""
        asked, last = self.asked, self.asked.tried[-1]
        refused = last.refused if last.refused and last.refused.why == "late" else None
        return CallRecord(
            id=asked.id,
            tenant=asked.tenant,
            model=last.model.name,
            version=last.model.version,
            job_class=asked.job_class,
            outcome=self.outcome,
            ended_at=at - (now_s - self.ended_s),
            target_ms=last.model.target_ms,
            timeout_ms=asked.timeout_ms,
            size=last.size,
            lane=last.lane,
            timing={**self.timing, "total_ms": round(self.total_ms, 3)},
            needed_ms=refused.wait_ms + last.terms.one_ms if refused else None,
            allowed_ms=max(0.0, last.terms.allowed_ms) if refused else None,
        )


class CallLog:
    """pipe: to Redis; on: whether any are kept."""

    def __init__(self, pipe: RedisPipeline, *, on: bool) -> None:
        self._pipe, self._on = pipe, on
        self._ended: list[_Ended] = []
        self._budget, self._written_s = _MOST, clock.monotonic()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._on:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._write()

    def note(self, asked: InferenceRequest, ended: BaseException | Mapping[str, Any]) -> None:
        """A call ended: with its timing, or with what it raised. Takes microseconds: the rest is
        for later."""
        if not self._on or not asked.tried:
            return  # it came to no model
        if isinstance(ended, BaseException):
            self._ended.append(_Ended(asked, outcome_of(ended), {}, clock.monotonic()))
        else:
            self._ended.append(_Ended(asked, "succeeded", ended, clock.monotonic()))

    async def find(self, id: str) -> CallRecord | None:
        """What is kept of a call. Raises RedisError."""
        key = record_key(id)
        packed = key and await self._pipe.ask("HGET", key, id)
        try:
            return CallRecord.unpack(packed) if packed else None
        except (ValueError, TypeError):
            return None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            self._write()

    def _write(self) -> None:
        """One command a minute in which these calls were made, all in one message."""
        ended, self._ended = self._ended, []
        now_s, at = clock.monotonic(), clock.now().timestamp()
        self._budget = min(_MOST, self._budget + _A_SECOND * (now_s - self._written_s))
        self._written_s = now_s
        if len(ended) > self._budget:
            ended = heapq.nlargest(int(self._budget), ended, key=lambda one: one.badness)
        self._budget -= len(ended)
        fields: dict[str, list[Any]] = {}
        for one in ended:
            its = fields.setdefault(str(record_key(one.asked.id)), [])
            its += one.asked.id, one.record(now_s, at).pack()
        for key, its in fields.items():
            self._pipe.send(_unheard, "HSET", key, *its)
            self._pipe.send(_unheard, "EXPIRE", key, RETENTION_S + _MARGIN_S)


def outcome_of(error: BaseException) -> str:
    """As metrics and records name it: an error's code, or that the client left."""
    if isinstance(error, MillraceError):  # of what the engine did, its fault says more
        unnamed = error.code == MillraceError.code and error.faults
        return error.faults[0].code if unnamed else error.code
    if isinstance(error, ClientDisconnect | asyncio.CancelledError):
        return "cancelled"
    return "unavailable" if isinstance(error, RedisError) else MillraceError.code


def _unheard(answer: Any) -> None:
    """A record that Redis didn't take is a record less."""
