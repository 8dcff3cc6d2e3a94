"""One call of a native or a compatible route: made while its client is there, answered or
rejected."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

import orjson

from api.gateway import metrics
from api.gateway.call_log import CallLog
from api.gateway.fallbacks import FallbackPlan
from api.gateway.gateway import GOES_ON, CallGateway
from api.gateway.model_status import SHARES
from api.gateway.requests import InferenceRequest, InferenceResult
from api.gateway.routing.shadow import AnsweredCall, ShadowCalls
from api.gateway.streaming.inbox import DeltaInbox
from api.http.retry_after import retry_delay_s
from jobs import clock, ids
from jobs.errors import (
    CallCancelled,
    DeadlinePassed,
    Fault,
    Invalid,
    MillraceError,
    Overloaded,
    QuotaExceeded,
    SpendCap,
    StreamMoved,
    TooLate,
    Unavailable,
    WorkerLost,
)
from jobs.identity import Caller
from jobs.immutable import immutable
from jobs.models.model import Model
from jobs.states import JobClass
from jobs.telemetry.tracing import spans

_REFUSALS = {
    "invalid_input": Invalid,
    "engine_error": MillraceError,
    "worker_lost": WorkerLost,
    "deadline_passed": DeadlinePassed,
    "transient": Unavailable,
    "rate_limited": Unavailable,
    CallCancelled.code: CallCancelled,
    StreamMoved.code: StreamMoved,
}


@immutable
class InferenceSession:
    """State that all calls of one request share."""

    gateway: CallGateway
    call_log: CallLog
    caller: Caller
    job_class: JobClass
    timeout_ms: int
    since_s: float  #: time at which the body had arrived, on the process's clock
    ready_s: float  #: time at which it was prepared; `since_s` of one that needs no child process
    client_disconnected: "asyncio.Future[Any]"  #: done once the client has left
    #: filled once a call is admitted
    response_headers: dict[str, str] = field(default_factory=dict)
    more_units: int = 0  #: see InferenceRequest
    waited_ms: float = 0.0  #: see InferenceRequest
    on_admitted: Callable[[], None] | None = None  #: see InferenceRequest
    retries_admission: bool = False  #: the caller retries calls that are rejected for now
    inbox: DeltaInbox | None = None  #: of a call that streams
    call_id: str = ""  #: of its only call; "": a new one each
    resume_within_s: int = 0  #: see Call
    shadows: ShadowCalls | None = None  #: gets answered calls that are to be copied

    async def call(self, value: Any, plans: Iterator[FallbackPlan]) -> "CallResult":
        """Makes a call. Raises what the gateway does, SpendCap, and the error that the call ended
        with."""
        first = next(plans)
        try:
            result = await self._traced_call(value, chain((first,), plans))
        except BaseException as error:
            self._record_failed(first.model, error)
            raise
        self._record_answered(result)
        if (shadow := result.plan.shadow) and self.shadows:
            answered = orjson.dumps(value), result.plan, result.output
            self.shadows.copy(AnsweredCall(self.caller.tenant, *answered), shadow)
        return result

    async def resume(self, plan: FallbackPlan) -> "CallResult":
        """Takes over the call `call_id`, which streams. plan: by which it was admitted. Raises
        NotFound where nothing is left of it, and what `call` does."""
        request = self._request(self.call_id, None, "")
        try:
            result = await self._ended(request, self.gateway.attach(request, plan))
        except BaseException as error:
            if request.attempts:
                self._record_failed(plan.model, error)
            raise
        if request.attempts:  # else it had ended before
            self._record_answered(result)
        return result

    def _record_failed(self, model: Model, error: BaseException) -> None:
        if not self._goes_on(error):
            metrics.record_failed(model, self.job_class, self.timeout_ms, error)

    def _record_answered(self, result: "CallResult") -> None:
        seconds = clock.monotonic() - self.since_s - self.waited_ms / 1000
        metrics.record_answered(result.plan.model, self.job_class, seconds, result.timing)

    def _goes_on(self, error: BaseException) -> bool:
        """Returns True where the call was not ended by the error, or is tried again."""
        return isinstance(error, GOES_ON) or (self.retries_admission and is_temporary(error))

    async def _traced_call(self, value: Any, plans: Iterator[FallbackPlan]) -> "CallResult":
        if self.caller.spent:
            raise SpendCap
        id = self.call_id or ids.new_shown("call")
        span = spans.child_span("call", "producer")
        if not span.context:
            return await self._call(id, value, plans, "")
        with span:
            span.set_attributes(
                millrace__call__id=id,
                millrace__tenant=self.caller.tenant,
                millrace__class=self.job_class,
            )
            result = await self._call(id, value, plans, span.packed)
            span.set_attributes(millrace__model=result.plan.model.key, millrace__units=result.units)
            if result.plan.cohort:
                span.set_attributes(millrace__cohort=result.plan.cohort)
        return result

    async def _call(
        self, id: str, value: Any, plans: Iterator[FallbackPlan], trace: str
    ) -> "CallResult":
        request = self._request(id, value, trace)
        return await self._ended(request, self.gateway.infer(request, plans))

    def _request(self, id: str, value: Any, trace: str) -> InferenceRequest:
        return InferenceRequest(
            id=id,
            tenant=self.caller.tenant,
            value=value,
            share=SHARES[self.job_class],
            job_class=self.job_class,
            weight=self.caller.weight,
            timeout_ms=self.timeout_ms,
            deadline_s=self.since_s + self.timeout_ms / 1000,
            client_disconnected=self.client_disconnected,
            ready_s=max(self.ready_s, self.since_s + self.waited_ms / 1000),
            limits=self.caller.limits,
            response_headers=self.response_headers,
            more_units=self.more_units,
            waited_ms=self.waited_ms,
            on_admitted=self.on_admitted,
            trace=trace,
            inbox=self.inbox,
            resume_within_s=self.resume_within_s,
        )

    async def _ended(
        self,
        request: InferenceRequest,
        call: Awaitable[tuple[FallbackPlan, InferenceResult]],
    ) -> "CallResult":
        """Waits for the end of a call, and records it."""
        timing: dict[str, Any] = {}
        try:
            plan, (output, error, units, timing) = await call
            if error is not None:
                raise _error(*error)
        except BaseException as ended:
            if not self._goes_on(ended):
                token_ms = timing.pop("token_ms", ()) or self._token_ms()
                worker = timing.pop("worker", "")
                self.call_log.record_end(request, ended, token_ms, timing, worker)
            if isinstance(ended, MillraceError):
                ended.more = {**ended.more, "call_id": request.id}
                ended.model = request.admitted_by
            raise
        token_ms, worker = timing.pop("token_ms", ()), timing.pop("worker", "")
        truncated = timing.pop("truncated", 0)
        self.call_log.record_end(request, timing, token_ms, worker=worker, units=units)
        return CallResult(request.id, plan, output or b"null", units, timing, truncated)

    def _token_ms(self) -> Sequence[int]:
        """Returns when deltas came, for a call whose worker tells nothing: it was withdrawn."""
        return self.inbox.token_times.since_ms(self.since_s) if self.inbox else ()


@immutable
class CallResult:
    """Result of a call, and the plan that served it."""

    id: str
    plan: FallbackPlan
    output: bytes  #: JSON text, as the worker wrote it
    units: int
    timing: Mapping[str, Any]
    truncated: int = 0  #: tokens of its text that were cut away


def is_temporary(error: BaseException) -> bool:
    """Returns True if there is only no room now, because of other requests."""
    if isinstance(error, QuotaExceeded):
        return error.bound.name == "calls_in_flight"
    return isinstance(error, TooLate | Overloaded)


def _error(code: str, message: str) -> MillraceError:
    kind = _REFUSALS.get(code, MillraceError)
    soon_s = retry_delay_s() if issubclass(kind, Unavailable) else None
    return kind(message, faults=[Fault(("input",), code, message)], retry_after_s=soon_s)
