"""Log of ended calls in Redis, written twice a second: all calls at low rates, else failed and
slow ones."""

import asyncio
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from redis.exceptions import RedisError
from starlette.requests import ClientDisconnect

from api import background
from api.gateway.redis_pipeline import Pipeline
from api.gateway.requests import InferenceRequest
from jobs import clock
from jobs.calls.records import LEFT_OUT, RETENTION_S, CallRecord, record_key
from jobs.errors import MillraceError

_EVERY_S = 0.5
#: Records that a process may write in the long run: half a kilobyte each, for an hour, are 18 MB.
_PER_SECOND = 10.0
#: Records at once after a quiet half minute: a few milliseconds of the event loop.
_MAX_BURST = 300.0
_MARGIN_S = 120  #: A record lives for an hour although its key is of a minute that began earlier.


class _EndedCall(NamedTuple):
    """Call that ended at `ended_s` on the process's clock."""

    request: InferenceRequest
    outcome: str
    timing: Mapping[str, Any]
    ended_s: float
    token_ms: Sequence[int] = ()
    worker: str = ""
    units: int | None = None

    @property
    def total_ms(self) -> float:
        """Milliseconds from the request to the end."""
        request = self.request
        left_ms = (request.deadline_s - self.ended_s) * 1000
        return request.timeout_ms - request.waited_ms - left_ms

    @property
    def slowness(self) -> float:
        """Share of its target that it, or its first token, took; infinite for a failed call."""
        answer_ms = self.timing.get("ttft_ms", self.total_ms)
        took = answer_ms / max(1, self.request.attempts[-1].model.answer_target_ms)
        return took if self.outcome == "succeeded" else inf

    def record(self, now_s: float, at: float) -> CallRecord:
        """Returns its record. `now_s` and `at` are one moment, on the process's clock and as Unix
        time."""
        request, last = self.request, self.request.attempts[-1]
        refused = last.refused if last.refused and last.refused.why == "late" else None
        return CallRecord(
            id=request.id,
            tenant=request.tenant,
            model=last.model.name,
            version=last.model.version,
            job_class=request.job_class,
            outcome=self.outcome,
            ended_at=at - (now_s - self.ended_s),
            target_ms=last.model.answer_target_ms,
            timeout_ms=request.timeout_ms,
            size=last.size,
            lane=last.lane,
            timing={**self.timing, "total_ms": round(self.total_ms, 3)},
            needed_ms=refused.wait_ms + last.terms.one_ms if refused else None,
            allowed_ms=max(0.0, last.terms.allowed_ms) if refused else None,
            token_ms=self.token_ms,
            worker=self.worker,
            units=self.units,
        )


class CallLog:
    """Writes records through `pipe`; does nothing where not `on`."""

    def __init__(self, pipe: Pipeline, *, on: bool) -> None:
        self._pipe, self._on = pipe, on
        self._ended: list[_EndedCall] = []
        self._budget, self._written_s = _MAX_BURST, clock.monotonic()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the periodic write."""
        if self._on:
            self._task = background.keep("call log", self._run)

    async def stop(self) -> None:
        """Writes what is left."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._write()

    def record_end(
        self,
        request: InferenceRequest,
        ended: BaseException | Mapping[str, Any],
        token_ms: Sequence[int] = (),
        timing: Mapping[str, Any] | None = None,
        worker: str = "",
        units: int | None = None,
    ) -> None:
        """Records the end of a call: its timing, or its exception, with the timing that is known;
        when it got tokens, its worker and its units. Takes microseconds; the rest is deferred."""
        if not self._on or not request.attempts:
            return  # rejected before any model was tried
        now_s = clock.monotonic()
        if isinstance(ended, BaseException):
            known = timing or _timing_of(token_ms)
            outcome = outcome_of(ended)
        else:
            known, outcome = ended, "succeeded"
        self._ended.append(_EndedCall(request, outcome, known, now_s, token_ms, worker, units))

    async def find(self, id: str) -> CallRecord | None:
        """Returns the record of a call, if there is one. Raises RedisError."""
        key = record_key(id)
        packed = key and await self._pipe.ask("HGET", key, id)
        try:
            return CallRecord.unpack(packed) if packed else None
        except (ValueError, TypeError):
            return None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            if self._ended:
                self._write()

    def _write(self) -> None:
        """Sends one command for each minute in which the calls began, in one message."""
        ended, self._ended = self._ended, []
        now_s, at = clock.monotonic(), clock.now().timestamp()
        self._budget = min(_MAX_BURST, self._budget + _PER_SECOND * (now_s - self._written_s))
        self._written_s = now_s
        if len(ended) > self._budget:
            ended = self._worst(ended)
        self._budget -= len(ended)
        fields: dict[str, list[Any]] = {}
        for call in ended:
            values = fields.setdefault(str(record_key(call.request.id)), [])
            values += call.request.id, call.record(now_s, at).pack()
        for key, values in fields.items():
            self._pipe.send(_ignore_reply, "HSET", key, *values)
            self._pipe.send(_ignore_reply, "EXPIRE", key, RETENTION_S + _MARGIN_S)

    def _worst(self, ended: Sequence[_EndedCall]) -> list[_EndedCall]:
        """Returns those that failed and the slowest, as many as there is room for; counts the
        others."""
        kept = heapq.nlargest(int(self._budget), ended, key=lambda call: call.slowness)
        left_out = Counter(record_key(call.request.id) for call in ended)
        left_out.subtract(record_key(call.request.id) for call in kept)
        for key, count in left_out.items():
            if key and count:
                self._pipe.send(_ignore_reply, "HINCRBY", key, LEFT_OUT, count)
                self._pipe.send(_ignore_reply, "EXPIRE", key, RETENTION_S + _MARGIN_S)
        return kept


def _timing_of(token_ms: Sequence[int]) -> Mapping[str, Any]:
    """Returns what the api saw of a call that was withdrawn: its prefill has its queue."""
    if not token_ms:
        return {}
    first = token_ms[0]
    return {"ttft_ms": first, "prefill_ms": first, "decode_ms": token_ms[-1] - first}


def outcome_of(error: BaseException) -> str:
    """Returns the outcome that metrics and records name: an error's code, or "cancelled" if the
    client left."""
    if isinstance(error, MillraceError):  # of what the engine did, its fault says more
        unnamed = error.code == MillraceError.code and error.faults
        return error.faults[0].code if unnamed else error.code
    if isinstance(error, ClientDisconnect | asyncio.CancelledError):
        return "cancelled"
    return "unavailable" if isinstance(error, RedisError) else MillraceError.code


def _ignore_reply(answer: Any) -> None:
    """Ignores the reply: a record that Redis did not take is one record less."""
