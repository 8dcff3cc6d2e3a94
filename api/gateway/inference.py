"""One call, by whichever door it came: sent while its client is there, answered or refused."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from fastapi import Request

from api.gateway import metrics
from api.gateway.call_log import CallLog
from api.gateway.fallbacks import FallbackPlan
from api.gateway.gateway import CallGateway, InferenceRequest
from api.gateway.model_status import SHARES
from api.http.retry_after import later_s
from jobs import clock, ids
from jobs.errors import (
    DeadlinePassed,
    Fault,
    Invalid,
    MillraceError,
    Overloaded,
    QuotaExceeded,
    SpendCap,
    TooLate,
    Unavailable,
    WorkerLost,
)
from jobs.identity import Caller
from jobs.models.registry import Registry
from jobs.states import JobClass
from jobs.telemetry.tracing import spans

_REFUSALS = {
    "invalid_input": Invalid,
    "engine_error": MillraceError,
    "worker_lost": WorkerLost,
    "deadline_passed": DeadlinePassed,
    "transient": Unavailable,
    "rate_limited": Unavailable,
}


@dataclass(frozen=True, slots=True)
class InferenceSession:
    """What holds for all calls of one request. since_s: when it came, on the process's clock; gone:
    done once its client has left; standing: the headers that tell of its quotas, once one of its
    calls is let in; patient: a call that isn't let in for now comes again; more_units, waited_ms,
    let_in: see Asked."""

    gateway: CallGateway
    records: CallLog
    models: Registry
    caller: Caller
    job_class: JobClass
    timeout_ms: int
    since_s: float
    client_disconnected: "asyncio.Future[Any]"
    rate_limit_headers: dict[str, str] = field(default_factory=dict)
    more_units: int = 0
    waited_ms: float = 0.0
    let_in: Callable[[], None] | None = None
    patient: bool = False

    async def call(self, value: Any, ways: Iterator[FallbackPlan]) -> "CallResult":
        """Raises what the gateway does, SpendCap, and the error that the call ended with."""
        first = next(ways)
        try:
            called = await self._ask(value, chain((first,), ways))
        except BaseException as error:
            if not (self.patient and for_now(error)):
                metrics.failed(first.model, self.job_class, self.timeout_ms, error)
            raise
        seconds = clock.monotonic() - self.since_s - self.waited_ms / 1000
        metrics.answered(called.way.model, self.job_class, seconds, called.timing)
        return called

    async def _ask(self, value: Any, ways: Iterator[FallbackPlan]) -> "CallResult":
        if self.caller.spent:
            raise SpendCap
        id = ids.show("call", ids.new())
        with spans.child_span("call", "producer") as span:
            span.set_attributes(
                millrace__call__id=id,
                millrace__tenant=self.caller.tenant,
                millrace__class=self.job_class,
            )
            called = await self._call(id, value, ways, span.packed)
            span.set_attributes(millrace__model=called.way.model.key, millrace__units=called.units)
        return called

    async def _call(
        self, id: str, value: Any, ways: Iterator[FallbackPlan], trace: str
    ) -> "CallResult":
        asked = InferenceRequest(
            id=id,
            tenant=self.caller.tenant,
            value=value,
            share=SHARES[self.job_class],
            job_class=self.job_class,
            weight=self.caller.weight,
            timeout_ms=self.timeout_ms,
            until_s=self.since_s + self.timeout_ms / 1000,
            client_disconnected=self.client_disconnected,
            limits=self.caller.limits,
            rate_limit_headers=self.rate_limit_headers,
            more_units=self.more_units,
            waited_ms=self.waited_ms,
            let_in=self.let_in,
            trace=trace,
        )
        try:
            way, (output, error, units, timing) = await self.gateway.infer(asked, ways)
            if error is not None:
                raise _error(*error)
        except BaseException as ended:
            if not (self.patient and for_now(ended)):
                self.records.note(asked, ended)
            if isinstance(ended, MillraceError):
                ended.more = {**ended.more, "call_id": asked.id}
            raise
        self.records.note(asked, timing)
        return CallResult(asked.id, way, output, units, timing)


@dataclass(frozen=True, slots=True)
class CallResult:
    """A call's answer, and the way that it took."""

    id: str
    way: FallbackPlan
    output: Any
    units: int
    timing: Mapping[str, Any]


@contextmanager
def watched(request: Request) -> "Iterator[asyncio.Future[Any]]":
    """What is done once the client has left; its body was read. A client that goes takes its calls
    back."""
    gone = asyncio.ensure_future(request.receive())
    try:
        yield gone
    finally:
        gone.cancel()


def for_now(error: BaseException) -> bool:
    """Whether there is no room as long as others are there."""
    if isinstance(error, QuotaExceeded):
        return error.bound.name == "calls_in_flight"
    return isinstance(error, TooLate | Overloaded)


def _error(code: str, message: str) -> MillraceError:
    kind = _REFUSALS.get(code, MillraceError)
    soon_s = later_s() if issubclass(kind, Unavailable) else None
    return kind(message, faults=[Fault(("input",), code, message)], retry_after_s=soon_s)
