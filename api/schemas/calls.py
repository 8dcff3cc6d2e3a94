"""Schemas of calls: requests, responses, and calls that have ended."""

from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

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
        default=10_000, ge=1, le=MAX_CALL_TIMEOUT_MS, description="for the whole answer"
    )
    call_class: JobClass = Field(
        default="interactive",
        alias="class",
        description="under pressure `bulk` is refused first, then `standard`, where the model's "
        "entry allows it",
    )


class EndedCall(BaseModel):
    """What is kept of a call that ended, and why it took so long or wasn't answered. Times are in
    milliseconds."""

    id: str
    tenant: str
    model: str
    version: str
    job_class: JobClass
    outcome: str = Field(description="succeeded, cancelled (its client left) or the error's code")
    ended_at: str
    target_ms: int
    timeout_ms: int
    size: int
    lane: str = Field(description="its parameters and its length bucket")
    timing: dict[str, float | int | str]
    needed_ms: float | None = Field(description="of one refused for its time: what was predicted")
    allowed_ms: float | None = Field(description="of one refused for its time: what was left")
    why: list[Finding]


class Degraded(BaseModel):
    """What was done to a call in place of refusing it, as its model's entry allows."""

    truncated_to: int = Field(default=0, description="the input was cut to so many tokens")
    fallback_from: str = Field(default="", description="the version that was asked")


class CallResponse(BaseModel):
    """The answer of POST /infer. Times are in milliseconds."""

    id: str
    model: str
    version: str = Field(description="of the model that answered")
    output: Any
    usage: dict[str, int]
    timing: dict[str, float | int | str] = Field(
        description="where the time went: gateway_ms, preprocess_ms, queue_ms, batch_ms, "
        "engine_ms and post_ms are total_ms together; and what it was launched with"
    )
    degraded: Degraded = Field(default_factory=Degraded, description="absent where nothing was")
