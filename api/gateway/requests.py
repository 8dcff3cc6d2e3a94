"""One call on its way through the gateway, the plans by which it was to be admitted, and its wait
for a result."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect

from api.gateway.model_status import ModelStatus
from api.gateway.streaming.inbox import DeltaInbox
from jobs import clock
from jobs.calls.lanes import Rejection, Terms
from jobs.calls.messages import Call, UnpackedReply
from jobs.errors import DeadlinePassed, MillraceError
from jobs.identity import Limit
from jobs.immutable import immutable
from jobs.models.model import Model
from jobs.states import JobClass

#: Output (JSON text), error, units and timing of a call.
InferenceResult = tuple[bytes | None, list[str] | None, int, dict[str, Any]]


@dataclass(slots=True)
class AdmissionAttempt:
    """One plan by which a call was to be admitted."""

    model: Model
    size: int
    lane: str
    terms: Terms
    refused: Rejection | None = None  #: None where it was admitted


@immutable
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
    ready_s: float  #: time from which it waited, on that clock: read, and prepared
    limits: tuple[Limit, ...] = ()  #: the caller's limits
    #: headers of the answer: its version, and once the call is admitted what is left of rates
    response_headers: dict[str, str] = field(default_factory=dict)
    more_units: int = 0  #: charged to the quota on top of its size
    waited_ms: float = 0.0  #: part of `timeout_ms` used before the call was made
    on_admitted: Callable[[], None] | None = None  #: called once it is admitted
    trace: str = ""  #: packed span context, see Call
    resume_within_s: int = 0  #: see Call
    inbox: DeltaInbox | None = None  #: of a call that streams
    attempts: list[AdmissionAttempt] = field(default_factory=list)  #: plans tried so far

    @property
    def spent_ms(self) -> int:
        """Part of its target that has passed in this process."""
        return max(0, round((clock.monotonic() - self.ready_s) * 1000))

    @property
    def admitted_by(self) -> str:
        """Version (name@version) that has admitted it; "": none."""
        last = self.attempts[-1] if self.attempts else None
        return last.model.key if last and not last.refused else ""


#: End of a call, or the reason why it was not admitted.
ResultFuture = asyncio.Future[InferenceResult | Rejection]


@immutable
class WaitingCall:
    """Call in Redis without a result."""

    call: Call
    status: ModelStatus
    result: ResultFuture
    inbox: DeltaInbox | None

    def give(self, reply: UnpackedReply) -> MillraceError | None:
        """Ends the wait with a reply. Returns an error in its place where deltas are missing."""
        _, output, error, units, timing = reply
        if self.result.done():
            return None
        if self.inbox and not error and (missing := self.inbox.check_end(timing)):
            return missing
        if self.inbox and self.call.stream:
            timing = self.inbox.add_gaps(timing)
        self.result.set_result((output, error, units, timing))
        return None


def new_result() -> ResultFuture:
    """Returns a future for the result of a call."""
    return asyncio.get_running_loop().create_future()


def end(result: ResultFuture, error: Exception) -> None:
    """Ends a wait with an error."""
    if not result.done():
        result.set_exception(error)


def expire(result: ResultFuture, timeout_ms: int) -> None:
    """Ends a wait whose time is over."""
    end(result, DeadlinePassed(f"no answer within {timeout_ms} ms"))


def leave(result: ResultFuture, client_disconnected: "asyncio.Future[Any]") -> None:
    """Ends the wait of a client that has left."""
    end(result, ClientDisconnect())
