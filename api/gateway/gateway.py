"""Calls from this api process: put into a central lane, then awaited on its own reply list."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from redis.exceptions import RedisError
from starlette.requests import ClientDisconnect

from api.gateway.fallbacks import FallbackPlan
from api.gateway.model_status import ModelStatus, ModelStatuses
from api.gateway.redis_pipeline import PipelineScript, RedisPipeline
from api.gateway.rejections import rejection
from api.http.rate_limit_headers import exceeded, rate_limit_headers
from api.http.retry_after import later_s
from jobs import clock, ids
from jobs.calls import scripts
from jobs.calls.lanes import Rejection, Terms, bucket_of, lane_name
from jobs.calls.messages import Call, unpack_replies
from jobs.calls.quotas import FREE, Quota, quota_of
from jobs.calls.redis import (
    charge_arguments,
    drop_arguments,
    put_arguments,
    read_remaining,
    refused,
    reply_key,
)
from jobs.errors import DeadlinePassed, MillraceError, Unavailable
from jobs.identity import Limit
from jobs.models.model import Model
from jobs.states import JobClass

_log = logging.getLogger(__name__)
_BLOCK_S = 5
_SILENT_S = 10.0
_RETRY_S = 0.2
_WATCH_S = 1.0
_PATIENCE_S = 0.5

InferenceResult = tuple[Any, list[str] | None, int, dict[str, Any]]
"""output, error, units, timing"""


@dataclass(slots=True)
class AdmissionAttempt:
    """One way in which a call was to be let in; refused: why it wasn't."""

    model: Model
    size: int
    lane: str
    terms: Terms
    refused: Rejection | None = None


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """Who wants what until when. share: of the time that may be waited
    (api/gateway/model_status.py); weight: its
    tenant's; until_s: on the process's clock; gone: done once the client has left; limits: the
    caller's; standing: the headers that tell of them, once the call is let in; more_units: what its
    quota is charged with on top of its size; waited_ms: of its time, before it was asked; let_in:
    is told when it is let in; trace: see Call; tried: gets the ways that were tried."""

    id: str
    tenant: str
    value: Any
    share: float
    job_class: JobClass
    weight: float
    timeout_ms: int
    until_s: float
    client_disconnected: "asyncio.Future[Any]"
    limits: tuple[Limit, ...] = ()
    rate_limit_headers: dict[str, str] = field(default_factory=dict)
    more_units: int = 0
    waited_ms: float = 0.0
    let_in: Callable[[], None] | None = None
    trace: str = ""
    tried: list[AdmissionAttempt] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A call that was sent to Redis. answer: its end, or why it wasn't let in."""

    call: Call
    pool: ModelStatus
    answer: "asyncio.Future[InferenceResult | Rejection]"


class CallGateway:
    """Any number of calls at a time."""

    def __init__(self, redis_url: str, most_waiting: int) -> None:
        self._pipe = RedisPipeline(redis_url, _SILENT_S)
        self._replies = RedisPipeline(redis_url, _SILENT_S)  # a pipe of its own: its command blocks
        self._put = PipelineScript(self._pipe, scripts.PUT)
        self._drop = PipelineScript(self._pipe, scripts.DROP)
        self._charge = PipelineScript(self._pipe, scripts.CHARGE)
        self.pools = ModelStatuses(self._pipe)
        self._most_waiting = most_waiting
        self.name = ids.show("api", ids.new())
        self._waiting: dict[str, _Waiting] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pipe.close()
        await self._replies.close()

    @property
    def in_flight(self) -> int:
        """Calls that have no answer yet."""
        return len(self._waiting)

    async def reachable(self) -> bool:
        try:
            return bool(await self._pipe.ask("PING"))
        except RedisError:
            return False

    async def charge(self, quota: Quota) -> None:
        """Counts a request that is no call. Raises QuotaExceeded; where Redis is silent it is let
        in: no job waits for Redis."""
        if quota is FREE:
            return
        try:
            async with asyncio.timeout(_PATIENCE_S):
                found = await self._charge.ask([], charge_arguments(quota))
        except (RedisError, TimeoutError) as error:
            _log.warning("couldn't count a request of %s: %s", quota.tenant, error)
            return
        no = refused(found, quota)
        if no and no.exceeded:
            raise exceeded(quota, no.exceeded)

    async def infer(
        self, asked: InferenceRequest, ways: Iterable[FallbackPlan]
    ) -> tuple[FallbackPlan, InferenceResult]:
        """The first way that lets the call in, and its answer.

        Raises why the first way refused it, where they all do; DeadlinePassed; ClientDisconnect;
        Unavailable where Redis lost the call; RedisError.
        """
        refusals: list[MillraceError] = []
        closed: Model | None = None  # takes no call at all
        for way in ways:
            if way.model is closed:
                continue
            pool = await self.pools.of(way.model)
            bucket = bucket_of(way.size, way.model.buckets)
            terms = pool.terms(bucket, asked.timeout_ms, asked.share)
            tried = AdmissionAttempt(way.model, way.size, lane_name(way.params, bucket), terms)
            asked.tried.append(tried)
            answer = await self._ask(asked, way, pool, tried.lane, terms)
            if not isinstance(answer, Rejection):
                left_ms = (asked.until_s - clock.monotonic()) * 1000
                took_ms = asked.timeout_ms - asked.waited_ms - left_ms
                if answer[1] is None:  # an error may come soon because there was no launch
                    pool.answered(bucket, asked.timeout_ms, took_ms)
                return way, answer
            tried.refused = answer
            if answer.exceeded:
                quota = quota_of(asked.tenant, asked.limits, way.model.name)
                refusals.append(exceeded(quota, answer.exceeded))
                break
            refusals.append(rejection(answer, way.model, terms, pool.profile.load_ms))
            if answer.why != "late":
                closed = way.model
        raise refusals[0]

    async def _ask(
        self, asked: InferenceRequest, way: FallbackPlan, pool: ModelStatus, lane: str, terms: Terms
    ) -> InferenceResult | Rejection:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[InferenceResult | Rejection] = loop.create_future()
        left_s = asked.until_s - clock.monotonic()
        timer = loop.call_later(left_s, _expire, answer, asked.timeout_ms)
        asked.client_disconnected.add_done_callback(partial(_leave, answer))
        call = Call(
            asked.id, lane, asked.tenant, asked.value, way.size, self.name,
            asked.weight, asked.job_class, trace=asked.trace,
        )  # fmt: skip
        quota = FREE
        if asked.limits:
            quota = quota_of(asked.tenant, asked.limits, way.model.name)
        arguments = put_arguments(
            pool.keys, call, target_ms=way.model.target_ms, timeout_ms=max(1, int(left_s * 1000)),
            most=self._most_waiting, terms=terms, quota=quota, more_units=asked.more_units,
        )  # fmt: skip
        self._put.send(partial(_admit, answer, asked, quota), pool.names, arguments)
        self._waiting[asked.id] = waiting = _Waiting(call, pool, answer)
        try:
            return await answer
        except BaseException:
            self._take_back(waiting)
            raise
        finally:
            timer.cancel()
            del self._waiting[asked.id]

    def _take_back(self, waiting: _Waiting) -> None:
        """Beside the request: Redis may be why there was no answer."""

        def note(found: Any) -> None:
            if isinstance(found, RedisError):
                _log.warning("couldn't take back %s: %s", waiting.call.id, found)

        arguments = drop_arguments(waiting.pool.keys, waiting.call)
        self._drop.send(note, waiting.pool.names, arguments)

    async def _read(self) -> None:
        """Hands replies to who awaits them, for as long as the process lives."""
        key = reply_key(self.name)
        while True:
            try:
                found = await self._replies.ask("BLPOP", key, _BLOCK_S)
            except RedisError as error:
                _log.warning("can't read replies: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                self._hand_out(found[1] if found else b"[]")
            except Exception:  # nobody else reads replies: the next ones are awaited too
                _log.exception("a message of replies can't be read")

    def _hand_out(self, packed: bytes) -> None:
        for id, *answer in unpack_replies(packed):
            waiting = self._waiting.get(id)
            if waiting and not waiting.answer.done():
                waiting.answer.set_result(tuple(answer))

    async def _watch(self) -> None:
        """Looks at the pools; ends the wait for calls that Redis lost (it was flushed, or came
        back empty). A call that is unknown twice in a row was not answered in between either."""
        unknown: set[str] = set()
        while True:
            await asyncio.sleep(_WATCH_S)
            before = unknown
            try:
                await self.pools.refresh()
                unknown = await self._unknown()
            except RedisError:
                continue
            for id in before & unknown & self._waiting.keys():
                lost = "the call was lost with Redis; send it again"
                _end(self._waiting[id].answer, Unavailable(lost, retry_after_s=later_s()))

    async def _unknown(self) -> set[str]:
        """The waiting calls that Redis knows nothing of."""
        asked = [(id, waiting.pool.keys("calls")) for id, waiting in self._waiting.items()]
        known = await asyncio.gather(*(self._pipe.ask("HEXISTS", key, id) for id, key in asked))
        return {id for (id, _), there in zip(asked, known, strict=True) if not there}


def _admit(
    answer: "asyncio.Future[InferenceResult | Rejection]",
    asked: InferenceRequest,
    quota: Quota,
    found: Any,
) -> None:
    """What PUT returned: only a refusal ends the wait."""
    if isinstance(found, RedisError):
        _end(answer, found)
    elif no := refused(found, quota):
        if not answer.done():
            answer.set_result(no)
    else:
        if quota is not FREE:
            asked.rate_limit_headers.update(rate_limit_headers(quota, read_remaining(found)))
        if asked.let_in:
            asked.let_in()


def _expire(answer: "asyncio.Future[InferenceResult | Rejection]", timeout_ms: int) -> None:
    _end(answer, DeadlinePassed(f"no answer within {timeout_ms} ms"))


def _leave(
    answer: "asyncio.Future[InferenceResult | Rejection]", gone: "asyncio.Future[Any]"
) -> None:
    if not answer.done():
        answer.set_exception(ClientDisconnect())


def _end(answer: "asyncio.Future[InferenceResult | Rejection]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
