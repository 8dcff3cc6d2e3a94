"""Gateway of calls: enqueues each in a lane in Redis, and awaits its result on this process's own
reply list."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from api import background
from api.gateway.cluster.pipeline import open_pipeline
from api.gateway.cluster.quotas import Charge, QuotaReservations
from api.gateway.cluster.replies import ReplyReader
from api.gateway.fallbacks import FallbackPlan
from api.gateway.model_status import ModelStatus, ModelStatuses
from api.gateway.redis_pipeline import PipelineScript
from api.gateway.rejections import rejection
from api.gateway.requests import (
    AdmissionAttempt,
    InferenceRequest,
    InferenceResult,
    ResultFuture,
    WaitingCall,
    end,
    expire,
    leave,
    new_result,
)
from api.gateway.streaming.attendance import Attendance
from api.gateway.streaming.ends import CallEnds
from api.gateway.streaming.known_calls import KnownCalls
from api.gateway.streaming.open_streams import OpenStreams
from api.http.errors import MODEL_HEADER
from api.http.rate_limit_headers import quota_exceeded, rate_limit_headers
from jobs import clock, ids
from jobs.calls import scripts
from jobs.calls.accounting.quota_arguments import charge_arguments
from jobs.calls.clients.cluster import is_cluster
from jobs.calls.keys import reply_key
from jobs.calls.lanes import Rejection, Terms, bucket_of, lane_name
from jobs.calls.messages import (
    DELTAS,
    FRAMED,
    LOST,
    SHADOW,
    Call,
    unpack_deltas,
    unpack_lost,
    unpack_replies,
)
from jobs.calls.quotas import FREE, Estimate, Quota, Remaining, quota_of
from jobs.calls.redis import (
    drop_arguments,
    put_arguments,
    read_remaining,
    refused,
)
from jobs.calls.streams.resumption import moved
from jobs.calls.streams.rollout import late_command
from jobs.errors import ApiStopping, DeadlinePassed, MillraceError, StreamMoved
from jobs.models.model import Model
from jobs.rollouts.cohorts import own_lanes

_log = logging.getLogger(__name__)
_SILENT_S = 10.0
_WATCH_S = 1.0
_PATIENCE_S = 0.5
_UNCHARGED_S = 1.0
#: Ends of a wait after which the call goes on.
GOES_ON = StreamMoved, ApiStopping


class CallGateway:
    """Sends calls to workers; any number at a time."""

    def __init__(self, redis_url: str, max_waiting: int, max_streams: int) -> None:
        self._redis_url = redis_url
        self._pipe = open_pipeline(redis_url, _SILENT_S)
        clustered = is_cluster(redis_url)
        self._reservations = QuotaReservations(self._pipe) if clustered else None
        self._put = PipelineScript(self._pipe, scripts.PUT)
        self._drop = PipelineScript(self._pipe, scripts.DROP)
        self._charge = PipelineScript(self._pipe, scripts.CHARGE)
        self.known_calls = KnownCalls(self._pipe, clustered=clustered)
        self.model_statuses = ModelStatuses(self._pipe, clustered=clustered)
        self._max_waiting = max_waiting
        self.open_streams = OpenStreams(max_streams)
        self._uncharged_until_s = 0.0  # on the process's clock
        self.name = ids.show("api", ids.new())
        self._reply_to = self.name + FRAMED
        self._waiting: dict[str, WaitingCall] = {}
        self._ends = CallEnds(self.known_calls)
        self._watching: asyncio.Task[None] | None = None
        self._reader = ReplyReader(redis_url, self._hand_out)
        self._attendance = Attendance(self._pipe, self._reply_to)

    def start(self) -> None:
        """Starts to read replies, and to watch for lost calls."""
        self._watching = background.keep("lost calls", self._watch)
        if not self._reservations:
            self._reader.read("", reply_key(self._reply_to))

    async def stop(self) -> None:
        """Stops both, and closes the connections."""
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._ends.stop()
        await self._reader.stop()
        await self._pipe.close()

    def hand_over(self) -> None:
        """Ends the streams here, not their calls: their clients can read on at another api."""
        for waiting in list(self._waiting.values()):
            if waiting.call.stream:
                message = "this api stops; read on by Last-Event-ID, or send the request again"
                end(waiting.result, ApiStopping(message, retry_after_s=0))

    @property
    def in_flight(self) -> int:
        """Number of calls without a result."""
        return len(self._waiting)

    def waits_for(self, *models: str) -> bool:
        """Returns True while a call of one of these models (name@version) has no result."""
        return any(each.status.model.key in models for each in self._waiting.values())

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
            status = await self._status(plan.model)
            size, model = plan.size, plan.model
            bucket = bucket_of(size, model.size_buckets)
            terms = status.terms(bucket, request.timeout_ms, request.share, request.tenant)
            terms = terms.at_once if plan.cohort == SHADOW else terms.after(request.spent_ms)
            own = plan.cohort and not status.generates  # steps are shared anyway
            cohort = own_lanes(plan.cohort) if own else ""
            lane = lane_name(plan.params, bucket_of(size, model.buckets), cohort)
            request.response_headers[MODEL_HEADER] = model.key
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
                quota = quota_of(request.tenant, request.limits, plan.model.served_by.name, True)
                errors.append(quota_exceeded(quota, result.exceeded))
                break
            load_ms, loading = status.profiles[0].load_ms, status.loading
            errors.append(rejection(result, plan.model, terms, load_ms, loading=loading))
            if result.why != "late":
                closed = plan.model
        try:
            raise errors[0]
        finally:
            del errors  # whose tracebacks hold this frame, and with it the call's input

    async def attach(
        self, request: InferenceRequest, plan: FallbackPlan
    ) -> tuple[FallbackPlan, InferenceResult]:
        """Takes over a call that streams, and returns its result: its inbox gets what it has
        emitted so far, then the rest. Raises NotFound where nothing is left of it, and what `infer`
        does."""
        status, inbox = await self._status(plan.model), request.inbox
        assert inbox
        if older := self._waiting.get(request.id):
            end(older.result, moved())
        waiting = WaitingCall(self._call(request, plan, ""), status, new_result(), inbox)
        self._waiting[request.id] = waiting
        inbox.hold()
        ask = self.known_calls.attach(plan.model, request.id, request.tenant, self._reply_to)
        try:
            attached = await ask
        except BaseException:
            self._forget(waiting)
            raise
        if call := attached.call:
            request = replace(request, timeout_ms=round(call.deadline_ms - call.enqueued_ms))
            request.attempts.append(AdmissionAttempt(plan.model, call.size, call.lane, Terms()))
        request.response_headers[MODEL_HEADER] = plan.model.key
        self._ends.restore(waiting, attached.deltas, attached.end)
        result = await self._result(waiting, request, attached.left_s)
        assert not isinstance(result, Rejection)
        return plan, result

    async def _status(self, model: Model) -> ModelStatus:
        """Returns a model's status; its replies are read from now on, and it knows this process."""
        status = await self.model_statuses.get(model)
        if self._reservations:
            self._reader.read(status.model.key, status.keys.replies(self._reply_to))
        self._attendance.tell(status)
        return status

    async def _enqueue(
        self,
        request: InferenceRequest,
        plan: FallbackPlan,
        status: ModelStatus,
        lane: str,
        terms: Terms,
    ) -> InferenceResult | Rejection:
        left_s = request.deadline_s - clock.monotonic()
        call, result = self._call(request, plan, lane), new_result()
        quota = FREE
        if request.limits:
            quota = quota_of(request.tenant, request.limits, plan.model.served_by.name, True)
        arguments = put_arguments(
            status.keys, call, target_ms=max(1, status.margin.target_ms - request.spent_ms),
            timeout_ms=max(1, int(left_s * 1000)),
            most=self._max_waiting, terms=terms, quota=quota, more_units=request.more_units,
            output_tokens=plan.output_tokens,
        )  # fmt: skip
        checked = FREE if self._reservations else quota
        its = status.names_for(call) if status.generates else status.names
        self._put.send(partial(_admit, result, request, checked), its, arguments)
        self._waiting[request.id] = WaitingCall(call, status, result, request.inbox)
        del result  # as in _result
        return await self._result(self._waiting[request.id], request, left_s)

    def _call(self, request: InferenceRequest, plan: FallbackPlan, lane: str) -> Call:
        streams = request.inbox is not None and plan.model.spec.generates
        return Call(
            request.id, lane, request.tenant, request.value, plan.size, self._reply_to,
            request.weight, request.job_class, trace=request.trace, stream=streams,
            resume_within_s=request.resume_within_s if streams else 0,
            adapter=plan.model.adapter_name, cohort=plan.cohort,
        )  # fmt: skip

    async def _result(
        self, waiting: WaitingCall, request: InferenceRequest, left_s: float
    ) -> InferenceResult | Rejection:
        """Waits for the result; withdraws the call where something else ends the wait."""
        result, inbox = waiting.result, waiting.inbox
        timer = asyncio.get_running_loop().call_later(left_s, expire, result, request.timeout_ms)
        left = partial(leave, result)
        request.client_disconnected.add_done_callback(left)
        if inbox:
            loading_s = partial(self.model_statuses.loading_s, waiting.status.model.key)
            inbox.start(partial(self._ends.fail, waiting), loading_s)
        try:
            return await result
        except GOES_ON:
            raise
        except BaseException as error:
            self._take_back(waiting)
            if isinstance(error, DeadlinePassed) and not waiting.status.generates:
                self._record_late(waiting.call, left_s)
            raise
        finally:
            timer.cancel()
            if inbox:
                inbox.stop()
            request.client_disconnected.remove_done_callback(left)
            self._forget(waiting)
            del result, waiting, left, timer  # of an error, whose traceback holds this frame

    def _forget(self, waiting: WaitingCall) -> None:
        if self._waiting.get(waiting.call.id) is waiting:
            del self._waiting[waiting.call.id]

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
        quota = quota_of(request.tenant, request.limits, plan.model.served_by.name, True)
        if quota is FREE or not self._reservations:
            return await enqueue()

        def note(remaining: list[Remaining]) -> None:
            request.response_headers.update(rate_limit_headers(quota, remaining))

        left_ms = max(1, int((request.deadline_s - clock.monotonic()) * 1000))
        size = Estimate(plan.size + request.more_units, plan.output_tokens)
        charge = Charge(quota, request.id, size, left_ms, terms)
        return await self._reservations.during(charge, enqueue, note)

    def _take_back(self, waiting: WaitingCall) -> None:
        """Withdraws a call in the background: Redis may be why there was no result."""

        def note(reply: Any) -> None:
            if isinstance(reply, RedisError):
                _log.warning("couldn't take back %s: %s", waiting.call.id, reply)

        arguments = drop_arguments(waiting.status.keys, waiting.call)
        self._drop.send(note, waiting.status.names, arguments)

    def _record_late(self, call: Call, waited_s: float) -> None:
        """Records a call of a rollout that wasn't answered in time. Models that generate end theirs
        themselves."""

        def note(reply: Any) -> None:
            if isinstance(reply, RedisError):
                _log.warning("%s isn't recorded for its rollout: %s", call.id, reply)

        if command := late_command(call, waited_s * 1000):
            self._pipe.send(note, *command)

    def _hand_out(self, packed: bytes) -> None:
        if packed.startswith(DELTAS):
            for delta in unpack_deltas(packed):
                waiting = self._waiting.get(delta.id)
                if waiting and waiting.inbox:
                    waiting.inbox.put(delta)
        elif packed.startswith(LOST):
            for id in unpack_lost(packed):
                if waiting := self._waiting.get(id):
                    self._ends.lose(waiting)
        else:
            for reply in unpack_replies(packed):
                waiting = self._waiting.get(reply[0])
                if waiting and waiting.inbox:
                    self._ends.give(waiting, reply)
                elif waiting:
                    waiting.give(reply)

    async def _watch(self) -> None:
        """Refreshes the models' status; looks for calls that Redis lost."""
        while True:
            await asyncio.sleep(_WATCH_S)
            used = {each.status.model.key for each in self._waiting.values()}
            with suppress(RedisError):  # of a cluster, one node may be away
                await self.model_statuses.refresh(used)
            calls = [(each.status, id) for id, each in self._waiting.items()]
            await self._attendance.look(calls)
            self._stop_idle_readers()

    def _stop_idle_readers(self) -> None:
        """Stops to read the replies of models that had no calls lately."""
        used = {each.status.model.key for each in self._waiting.values()}
        for model in self._reader.models - used:
            if model and not self.model_statuses.knows(model):
                self._reader.forget(model)


def _admit(result: ResultFuture, request: InferenceRequest, quota: Quota, reply: Any) -> None:
    """Handles the reply of PUT: only a rejection ends the wait."""
    if isinstance(reply, RedisError):
        end(result, reply)
    elif rejected := refused(reply, quota):
        if not result.done():
            result.set_result(rejected)
    else:
        if quota is not FREE:
            request.response_headers.update(rate_limit_headers(quota, read_remaining(reply)))
        if request.on_admitted:
            request.on_admitted()
