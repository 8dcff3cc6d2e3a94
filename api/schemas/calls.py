"""Schemas of calls: requests, responses, and calls that have ended."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.common import WholeNumber
from api.schemas.fleet import Finding
from jobs.states import JobClass

MAX_CALL_TIMEOUT_MS = 600_000


class CallRequest(BaseModel):
    """The body of POST /infer."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(
        min_length=1,
        max_length=200,
        description="name@version; or a name: its newest version that a worker is ready for",
    )
    input: Any
    params: dict[str, Any] = Field(default_factory=dict)
    timeout_ms: WholeNumber = Field(
        default=10_000, ge=1, le=MAX_CALL_TIMEOUT_MS, description="deadline of the whole response"
    )
    call_class: JobClass = Field(
        default="interactive",
        alias="class",
        description="under pressure `bulk` is rejected first, then `standard`, where the model's "
        "entry allows it",
    )


class EndedCall(BaseModel):
    """Record of a call that ended, with the reasons for its latency or failure. Times are in
    milliseconds."""

    id: str
    tenant: str
    model: str
    version: str
    job_class: JobClass
    outcome: str = Field(
        description="succeeded, cancelled (its client left) or the code of the error"
    )
    ended_at: str
    target_ms: int
    timeout_ms: int
    size: int
    lane: str = Field(description="parameters and length bucket")
    timing: dict[str, float | int | str]
    needed_ms: float | None = Field(
        description="predicted time of a call that was rejected as late"
    )
    allowed_ms: float | None = Field(
        description="time that was left to a call that was rejected as late"
    )
    why: list[Finding]


class Degraded(BaseModel):
    """Degradation of a call, as its model's entry allows."""

    truncated_to: int = Field(default=0, description="tokens that the input was cut to")
    fallback_from: str = Field(default="", description="the requested version")


class CallResponse(BaseModel):
    """The response of POST /infer. Times are in milliseconds."""

    id: str
    model: str
    version: str = Field(description="version of the model that served the call")
    output: Any
    usage: dict[str, int]
    timing: dict[str, float | int | str] = Field(
        description="where the time went: gateway_ms, preprocess_ms, queue_ms, batch_ms, "
        "engine_ms and post_ms add up to total_ms; and the size and flush reason of its launch"
    )
    degraded: Degraded = Field(
        default_factory=Degraded, description="absent where it was not degraded"
    )
