"""Gateway of calls: enqueues each in a lane in Redis, and awaits its result on this process's own
reply list."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from redis.exceptions import RedisError
from starlette.requests import ClientDisconnect

from api.gateway.cluster.pipeline import open_pipeline
from api.gateway.cluster.quotas import Charge, QuotaReservations
from api.gateway.fallbacks import FallbackPlan
from api.gateway.model_status import ModelStatus, ModelStatuses
from api.gateway.redis_pipeline import Pipeline, PipelineScript
from api.gateway.rejections import rejection
from api.gateway.streaming.inbox import DeltaInbox
from api.http.rate_limit_headers import quota_exceeded, rate_limit_headers
from api.http.retry_after import retry_delay_s
from jobs import clock, ids
from jobs.calls import scripts
from jobs.calls.accounting.quota_arguments import charge_arguments
from jobs.calls.cluster import is_cluster
from jobs.calls.keys import reply_key
from jobs.calls.lanes import Rejection, Terms, bucket_of, lane_name
from jobs.calls.messages import DELTAS, FRAMED, Call, unpack_deltas, unpack_replies
from jobs.calls.quotas import FREE, Estimate, Quota, Remaining, quota_of
from jobs.calls.redis import (
    drop_arguments,
    put_arguments,
    read_remaining,
    refused,
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
_UNCHARGED_S = 1.0
_ASKED_AT_ONCE = 1000  # calls of one message that asks whether Redis knows them

#: Output (JSON text), error, units and timing of a call.
InferenceResult = tuple[bytes | None, list[str] | None, int, dict[str, Any]]
#: End of a call, or the reason why it was not admitted.
_ResultFuture = asyncio.Future[InferenceResult | Rejection]


@dataclass(slots=True)
class AdmissionAttempt:
    """One plan by which a call was to be admitted."""

    model: Model
    size: int
    lane: str
    terms: Terms
    refused: Rejection | None = None  #: None where it was admitted


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One call to enqueue."""

    id: str
    tenant: str
    value: Any
    share: float  #: share of the tolerable wait, by class (api/gateway/model_status.py)
    job_class: JobClass
    weight: float  #: fair-share weight of the tenant
    timeout_ms: int  #: for the whole request
    deadline_s: float  #: on the process's clock
    client_disconnected: "asyncio.Future[Any]"  #: done once the client has left
    limits: tuple[Limit, ...] = ()  #: the caller's limits
    #: filled once the call is admitted
    rate_limit_headers: dict[str, str] = field(default_factory=dict)
    more_units: int = 0  #: charged to the quota on top of its size
    waited_ms: float = 0.0  #: part of `timeout_ms` used before the call was made
    on_admitted: Callable[[], None] | None = None  #: called once it is admitted
    trace: str = ""  #: packed span context, see Call
    inbox: DeltaInbox | None = None  #: of a call that streams
    attempts: list[AdmissionAttempt] = field(default_factory=list)  #: plans tried so far


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Call in Redis without a result."""

    call: Call
    status: ModelStatus
    result: _ResultFuture
    inbox: DeltaInbox | None


class CallGateway:
    """Sends calls to workers; any number at a time."""

    def __init__(self, redis_url: str, max_waiting: int) -> None:
        self._redis_url = redis_url
        self._pipe = open_pipeline(redis_url, _SILENT_S)
        clustered = is_cluster(redis_url)
        self._reservations = QuotaReservations(self._pipe) if clustered else None
        self._put = PipelineScript(self._pipe, scripts.PUT)
        self._drop = PipelineScript(self._pipe, scripts.DROP)
        self._charge = PipelineScript(self._pipe, scripts.CHARGE)
        self._find_unknown = PipelineScript(self._pipe, scripts.UNKNOWN)
        self.model_statuses = ModelStatuses(self._pipe, clustered=clustered)
        self._max_waiting = max_waiting
        self._uncharged_until_s = 0.0  # on the process's clock
        self.name = ids.show("api", ids.new())
        self._reply_to = self.name + FRAMED
        self._waiting: dict[str, _Waiting] = {}
        self._watching: asyncio.Task[None] | None = None
        # By model; on a single Redis one for all, under "".
        self._readers: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Starts to read replies, and to watch for lost calls."""
        self._watching = asyncio.create_task(self._watch())
        if not self._reservations:
            self._start_reader("", reply_key(self._reply_to))

    async def stop(self) -> None:
        """Stops both, and closes the connections."""
        tasks = [task for task in (self._watching, *self._readers.values()) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pipe.close()

    @property
    def in_flight(self) -> int:
        """Number of calls without a result."""
        return len(self._waiting)

    async def reachable(self) -> bool:
        """Returns True if Redis answers."""
        try:
            return await self._pipe.ping()
        except RedisError:
            return False

    async def charge(self, quota: Quota) -> None:
        """Charges a request to its quota.

        Raises QuotaExceeded. Admits it where Redis is silent, and the next second's requests
        without a look: no job or read waits for Redis.
        """
        if quota is FREE or clock.monotonic() < self._uncharged_until_s:
            return
        try:
            async with asyncio.timeout(_PATIENCE_S):
                key, *rates = charge_arguments(quota)
                reply = await self._charge.ask([key], rates)
        except (RedisError, TimeoutError) as error:
            _log.warning("couldn't count a request of %s: %s", quota.tenant, error)
            self._uncharged_until_s = clock.monotonic() + _UNCHARGED_S
            return
        rejected = refused(reply, quota)
        if rejected and rejected.exceeded:
            raise quota_exceeded(quota, rejected.exceeded)

    async def infer(
        self, request: InferenceRequest, plans: Iterable[FallbackPlan]
    ) -> tuple[FallbackPlan, InferenceResult]:
        """Returns the first plan that admits the call, and its result.

        Raises why the first plan was rejected, where all are; DeadlinePassed; ClientDisconnect;
        Unavailable where Redis lost the call; RedisError.
        """
        errors: list[MillraceError] = []
        closed: Model | None = None  # rejects all calls
        for plan in plans:
            if plan.model is closed:
                continue
            status = await self.model_statuses.get(plan.model)
            if self._reservations and plan.model.key not in self._readers:
                self._start_reader(plan.model.key, status.keys.replies(self._reply_to))
            size, model = plan.size, plan.model
            bucket = bucket_of(size, model.size_buckets)
            terms = status.terms(bucket, request.timeout_ms, request.share)
            lane = lane_name(plan.params, bucket_of(size, model.buckets))
            attempt = AdmissionAttempt(model, size, lane, terms)
            request.attempts.append(attempt)
            enqueue = self._enqueue_charged if self._reservations else self._enqueue
            result = await enqueue(request, plan, status, attempt.lane, terms)
            if not isinstance(result, Rejection):
                left_ms = (request.deadline_s - clock.monotonic()) * 1000
                took_ms = request.timeout_ms - request.waited_ms - left_ms
                if result[1] is None:  # an error may come soon because there was no launch
                    status.record_latency(bucket, request.timeout_ms, took_ms)
                return plan, result
            attempt.refused = result
            if result.exceeded:
                quota = quota_of(request.tenant, request.limits, plan.model.name, True)
                errors.append(quota_exceeded(quota, result.exceeded))
                break
            errors.append(rejection(result, plan.model, terms, status.profile.load_ms))
            if result.why != "late":
                closed = plan.model
        raise errors[0]

    async def _enqueue(
        self,
        request: InferenceRequest,
        plan: FallbackPlan,
        status: ModelStatus,
        lane: str,
        terms: Terms,
    ) -> InferenceResult | Rejection:
        loop = asyncio.get_running_loop()
        result: _ResultFuture = loop.create_future()
        left_s = request.deadline_s - clock.monotonic()
        timer = loop.call_later(left_s, _expire, result, request.timeout_ms)
        leave = partial(_leave, result)
        request.client_disconnected.add_done_callback(leave)
        call = Call(
            request.id, lane, request.tenant, request.value, plan.size, self._reply_to,
            request.weight, request.job_class, trace=request.trace,
            stream=request.inbox is not None and plan.model.spec.generates,
        )  # fmt: skip
        quota = FREE
        if request.limits:
            quota = quota_of(request.tenant, request.limits, plan.model.name, True)
        arguments = put_arguments(
            status.keys, call, target_ms=status.margin.target_ms,
            timeout_ms=max(1, int(left_s * 1000)),
            most=self._max_waiting, terms=terms, quota=quota, more_units=request.more_units,
            output_tokens=plan.output_tokens,
        )  # fmt: skip
        checked = FREE if self._reservations else quota
        self._put.send(partial(_admit, result, request, checked), status.names, arguments)
        self._waiting[request.id] = waiting = _Waiting(call, status, result, request.inbox)
        if request.inbox:
            request.inbox.start(partial(_end, result))
        try:
            return await result
        except BaseException:
            self._take_back(waiting)
            raise
        finally:
            timer.cancel()
            if request.inbox:
                request.inbox.stop()
            request.client_disconnected.remove_done_callback(leave)
            del self._waiting[request.id]

    async def _enqueue_charged(
        self,
        request: InferenceRequest,
        plan: FallbackPlan,
        status: ModelStatus,
        lane: str,
        terms: Terms,
    ) -> InferenceResult | Rejection:
        """Enqueues a call on a Redis Cluster, where its quota is charged in a step of its own."""
        enqueue = partial(self._enqueue, request, plan, status, lane, terms)
        quota = quota_of(request.tenant, request.limits, plan.model.name, True)
        if quota is FREE or not self._reservations:
            return await enqueue()

        def note(remaining: list[Remaining]) -> None:
            request.rate_limit_headers.update(rate_limit_headers(quota, remaining))

        left_ms = max(1, int((request.deadline_s - clock.monotonic()) * 1000))
        size = Estimate(plan.size + request.more_units, plan.output_tokens)
        charge = Charge(quota, request.id, size, left_ms, terms)
        return await self._reservations.during(charge, enqueue, note)

    def _take_back(self, waiting: _Waiting) -> None:
        """Withdraws a call in the background: Redis may be why there was no result."""

        def note(reply: Any) -> None:
            if isinstance(reply, RedisError):
                _log.warning("couldn't take back %s: %s", waiting.call.id, reply)

        arguments = drop_arguments(waiting.status.keys, waiting.call)
        self._drop.send(note, waiting.status.names, arguments)

    def _start_reader(self, model: str, key: str) -> None:
        self._readers[model] = asyncio.create_task(self._read(key))

    async def _read(self, key: str) -> None:
        """Passes replies to their calls, on a connection of its own, which BLPOP blocks."""
        pipe = open_pipeline(self._redis_url, _SILENT_S)
        try:
            await self._pass_replies(pipe, key)
        finally:
            await pipe.close()

    async def _pass_replies(self, pipe: Pipeline, key: str) -> None:
        while True:
            try:
                reply = await pipe.ask("BLPOP", key, _BLOCK_S)
            except RedisError as error:
                _log.warning("can't read replies: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                self._hand_out(reply[1] if reply else b"[]")
            except Exception:  # nobody else reads replies: the next ones are awaited too
                _log.exception("a message of replies can't be read")

    def _hand_out(self, packed: bytes) -> None:
        if packed.startswith(DELTAS):
            for delta in unpack_deltas(packed):
                waiting = self._waiting.get(delta.id)
                if waiting and waiting.inbox:
                    waiting.inbox.put(delta)
            return
        for id, output, error, units, timing in unpack_replies(packed):
            waiting = self._waiting.get(id)
            if not waiting or waiting.result.done():
                continue
            lost = waiting.inbox.check_end(timing) if waiting.inbox and not error else None
            if lost:
                waiting.result.set_exception(lost)
            else:
                waiting.result.set_result((output, error, units, timing))

    async def _watch(self) -> None:
        """Refreshes the models' status; ends calls that Redis lost (it was flushed, or restarted
        empty).

        A call that is unknown twice in a row was not answered in between either.
        """
        unknown: set[str] = set()
        while True:
            await asyncio.sleep(_WATCH_S)
            before = unknown
            with suppress(RedisError):  # of a cluster, one node may be away
                await self.model_statuses.refresh()
            unknown = await self._unknown()
            self._stop_idle_readers()
            for id in before & unknown & self._waiting.keys():
                lost = "the call was lost with Redis; send it again"
                _end(self._waiting[id].result, Unavailable(lost, retry_after_s=retry_delay_s()))

    def _stop_idle_readers(self) -> None:
        """Stops to read the replies of models that had no calls lately."""
        used = {each.status.model.key for each in self._waiting.values()}
        for model in self._readers.keys() - used:
            if model and not self.model_statuses.knows(model):
                self._readers.pop(model).cancel()

    async def _unknown(self) -> set[str]:
        """Returns the waiting calls that Redis doesn't know."""
        by_model: dict[str, tuple[ModelStatus, list[str]]] = {}
        for id, waiting in self._waiting.items():
            model = waiting.status.keys.model
            by_model.setdefault(model, (waiting.status, []))[1].append(id)
        unknown = await asyncio.gather(
            *(
                self._find_unknown.ask(status.names, ids[n : n + _ASKED_AT_ONCE])
                for status, ids in by_model.values()
                for n in range(0, len(ids), _ASKED_AT_ONCE)
            ),
            return_exceptions=True,  # of a node that is away
        )
        return {id.decode() for ids in unknown if isinstance(ids, list) for id in ids}


def _admit(result: _ResultFuture, request: InferenceRequest, quota: Quota, reply: Any) -> None:
    """Handles the reply of PUT: only a rejection ends the wait."""
    if isinstance(reply, RedisError):
        _end(result, reply)
    elif rejected := refused(reply, quota):
        if not result.done():
            result.set_result(rejected)
    else:
        if quota is not FREE:
            request.rate_limit_headers.update(rate_limit_headers(quota, read_remaining(reply)))
        if request.on_admitted:
            request.on_admitted()


def _expire(result: _ResultFuture, timeout_ms: int) -> None:
    _end(result, DeadlinePassed(f"no answer within {timeout_ms} ms"))


def _leave(result: _ResultFuture, client_disconnected: "asyncio.Future[Any]") -> None:
    if not result.done():
        result.set_exception(ClientDisconnect())


def _end(result: _ResultFuture, error: Exception) -> None:
    if not result.done():
        result.set_exception(error)
