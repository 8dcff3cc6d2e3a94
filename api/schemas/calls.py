"""Schemas of calls: requests, responses, and calls that have ended."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from api.schemas.common import (
    CALL_ID,
    MODEL,
    VECTOR,
    Body,
    CallId,
    ModelName,
    ModelVersion,
    TenantName,
    Timestamp,
    WholeNumber,
)
from api.schemas.fleet import Finding
from jobs.states import JobClass

MAX_CALL_TIMEOUT_MS = 600_000
_TIMING = {
    "gateway_ms": 0.2,
    "preprocess_ms": 0.2,
    "queue_ms": 3.1,
    "batch_ms": 0.8,
    "engine_ms": 9.7,
    "post_ms": 0.2,
    "total_ms": 14.2,
    "batch_size": 7,
    "flush": "pace",
}


class CallRequest(Body):
    """The body of POST /infer."""

    model: str = Field(
        min_length=1,
        max_length=200,
        description="name@version; or a name: its newest version that a worker is ready for",
        examples=[MODEL],
    )
    input: Any = Field(examples=["how do I parse JSON"])
    params: dict[str, Any] = Field(default_factory=dict)
    timeout_ms: WholeNumber = Field(
        default=10_000,
        ge=1,
        le=MAX_CALL_TIMEOUT_MS,
        description="deadline of the whole response; of a stream 600,000 where it is absent",
        examples=[5000],
    )
    stream: bool = Field(
        default=False,
        description="answers with server-sent events: `tokens` as they come, then `done` with "
        "usage and timing, or `error`; for models that generate",
        examples=[False],
    )
    first_token_ms: WholeNumber = Field(
        default=60_000,
        ge=1,
        le=MAX_CALL_TIMEOUT_MS,
        description="deadline of the first event of a stream",
        examples=[5000],
    )
    idle_ms: WholeNumber = Field(
        default=30_000,
        ge=1,
        le=MAX_CALL_TIMEOUT_MS,
        description="longest time between two of them",
        examples=[5000],
    )
    call_class: JobClass = Field(
        default="interactive",
        alias="class",
        description="under pressure `bulk` is rejected first, then `standard`, where the model's "
        "entry allows it",
    )


class CancelledCall(BaseModel):
    """Call that was ended."""

    id: CallId
    outcome: Literal["cancelled"]


EVENTS = (
    'event: tokens\ndata: {"choice": 0, "index": 0, "text": "The", "tokens": [504]}\n'
    f"id: {CALL_ID}/0\n\n"
)


class ListedCall(BaseModel):
    """A call that ended. Times are in milliseconds."""

    id: CallId
    tenant: TenantName
    model: ModelName
    version: ModelVersion
    job_class: JobClass
    outcome: str = Field(
        description="succeeded, cancelled (its client left) or the code of the error",
        examples=["succeeded"],
    )
    late: bool = Field(
        description="answered after its target (of a model that generates: the first token), or "
        "not before its deadline",
        examples=[False],
    )
    ended_at: Timestamp
    target_ms: int = Field(examples=[250])
    size: int = Field(description="of its input, in the model's unit", examples=[7])
    units: int | None = Field(
        description="of its input and what was generated; null: it wasn't answered", examples=[7]
    )
    timing: dict[str, float | int | str] = Field(
        description="as in the response", examples=[_TIMING]
    )
    worker: str | None = Field(
        description="the one that ended it, for operators; null: none did", examples=["12"]
    )


class EndedCallPage(BaseModel):
    """Calls that ended, newest first."""

    data: list[ListedCall]
    next: str | None = Field(description="`after` of the next page", examples=[CALL_ID])
    left_out: int | None = Field(
        description="for operators: calls of the time that was looked at that aren't recorded",
        examples=[0],
    )


class EndedCall(ListedCall):
    """Record of a call that ended, with the reasons for its latency or failure."""

    timeout_ms: int = Field(examples=[5000])
    lane: str = Field(description="parameters and length bucket", examples=["{}/16"])
    needed_ms: float | None = Field(
        description="predicted time of a call that was rejected as late"
    )
    allowed_ms: float | None = Field(
        description="time that was left to a call that was rejected as late"
    )
    token_ms: list[int] = Field(
        description="when it got tokens, since it was enqueued, of a model that generates: at most "
        "64 of the times",
        examples=[[41, 52, 63]],
    )
    why: list[Finding] = Field(
        examples=[
            [
                {
                    "code": "call_in_time",
                    "severity": "info",
                    "about": f"call:{CALL_ID}",
                    "words": "answered in 14.2 ms, its target is 250 ms: 0.4 ms in the api and on "
                    "the way, 3.1 ms in its lane, 0.8 ms from closing the launch to the device, "
                    "9.7 ms on the device, 0.2 ms after it",
                    "advice": "",
                    "evidence": {"total_ms": 14.2},
                }
            ]
        ]
    )


class Degraded(BaseModel):
    """Degradation of a call, as its model's entry allows."""

    truncated_to: int = Field(default=0, description="tokens that the input was cut to")
    fallback_from: str = Field(default="", description="the requested version")


class CallResponse(BaseModel):
    """The response of POST /infer. Times are in milliseconds."""

    id: CallId
    model: ModelName
    version: ModelVersion = Field(description="version of the model that served the call")
    output: Any = Field(examples=[VECTOR])
    usage: dict[str, int] = Field(
        description="its size, and as `truncated` the tokens of its text that were cut off, if any",
        examples=[{"tokens": 7}],
    )
    timing: dict[str, float | int | str] = Field(
        description="where the time went: gateway_ms, preprocess_ms, queue_ms, batch_ms, "
        "engine_ms and post_ms add up to total_ms; and the size and flush reason of its launch",
        examples=[_TIMING],
    )
    degraded: Degraded = Field(
        default_factory=Degraded, description="absent where it was not degraded"
    )
