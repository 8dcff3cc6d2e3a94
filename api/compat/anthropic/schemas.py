"""Schemas of Anthropic's Message Batches."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from api.http import idempotency
from api.schemas.common import NEXT_DAY, MessageBatchId, Timestamp


class BatchedRequest(BaseModel):
    """One request of a batch."""

    custom_id: str = Field(examples=["a-1"])
    params: dict[str, Any] = Field(
        description="the body of a Messages request",
        examples=[
            {
                "model": "chatter",
                "max_tokens": 100,
                "messages": [{"role": "user", "content": "Hello"}],
            }
        ],
    )


class MessageBatchRequest(BaseModel):
    """The body of POST /v1/messages/batches."""

    requests: list[BatchedRequest] = Field(min_length=1)
    on_invalid: Literal["reject", "fail_item"] = Field(
        default="reject",
        description="`fail_item`: a request with a fault fails alone; else the batch is refused",
    )


class RequestCounts(BaseModel):
    """Requests of a batch by state."""

    processing: int = Field(examples=[600])
    succeeded: int = Field(examples=[398])
    errored: int = Field(examples=[2])
    canceled: int
    expired: int


class MessageBatch(BaseModel):
    """Message batch, with the counts of this moment."""

    id: MessageBatchId = Field(description="`job_…` names the same job in the native routes")
    type: Literal["message_batch"]
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: RequestCounts
    created_at: Timestamp
    expires_at: str | None = Field(examples=[NEXT_DAY])
    ended_at: str | None = None
    cancel_initiated_at: str | None = None
    archived_at: None = None
    results_url: str | None = Field(
        default=None, description="once it has ended; the route works before, too"
    )


class MessageBatchPage(BaseModel):
    """Page of message batches."""

    data: list[MessageBatch]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedMessageBatch(BaseModel):
    """Deleted message batch."""

    id: MessageBatchId
    type: Literal["message_batch_deleted"]


class ErrorObject(BaseModel):
    """Type and message of an error."""

    type: str
    message: str


class AnthropicErrorResponse(BaseModel):
    """Response with an error."""

    type: Literal["error"]
    error: ErrorObject
    request_id: str | None


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {
        "model": AnthropicErrorResponse,
        "description": "What went wrong, as Anthropic words it",
    }
    for status in (400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 503, 507, 529)
}

_LINE = (
    '{"custom_id":"a-1","result":{"type":"succeeded","message":{"id":"msg_…","type":"message",'
    '"role":"assistant","model":"chatter","content":[{"type":"text","text":"Hello!"}],'
    '"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":2}}}}'
)
RESULTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/x-jsonl": {"schema": {"type": "string"}, "example": _LINE}}}
}
CREATED: dict[int | str, dict[str, Any]] = {200: idempotency.REPLAY_HEADER_DOC}
CREATE = idempotency.request_doc("MessageBatchRequest")
