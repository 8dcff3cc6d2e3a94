"""Schemas of responses, for the documentation: bodies are read by requests.py."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.calls import MAX_CALL_TIMEOUT_MS
from api.schemas.common import Metadata

_ID = "resp_01kajf7q5rf0h8zq2m4w6y8a0b"
_CREATED = 1_763_629_200
_MODEL = "smollm2"
_TEXT = "The channel that leads water to a mill."
_MESSAGE: dict[str, Any] = {
    "type": "message",
    "id": "msg_01kajf7q5rf0h8zq2m4w6y8a0b00",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": _TEXT, "annotations": [], "logprobs": []}],
}


class ResponseRequest(BaseModel):
    """The body of POST /v1/responses. Other fields of OpenAI's are accepted where they change no
    output."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(
        description="name@version; or a name: its newest version that a worker is ready for",
        examples=[_MODEL],
    )
    input: str | list[dict[str, Any]] = Field(
        description="a text, or items: messages, `function_call`, `function_call_output`, "
        "`item_reference`",
        examples=["What is a millrace?"],
    )
    instructions: str | None = Field(default=None, description="a system message before the input")
    previous_response_id: str | None = Field(
        default=None, description="a stored response: its conversation comes before the input"
    )
    conversation: str | dict[str, str] | None = Field(
        default=None, description="its items come before; those of the response are appended"
    )
    store: bool | None = Field(default=None, description="default: true")
    background: bool | None = Field(
        default=None, description="a job runs it; also needs the scope submit"
    )
    stream: bool | None = None
    metadata: Metadata | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    include: list[str] | None = Field(
        default=None, description="`message.output_text.logprobs`; others have no effect"
    )
    text: dict[str, Any] | None = Field(
        default=None, description="`format`: text, json_object or json_schema"
    )
    tools: list[dict[str, Any]] | None = Field(default=None, description="functions")
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    timeout_ms: int | None = Field(
        default=None, ge=1, le=MAX_CALL_TIMEOUT_MS, description="default: 600,000; not of a job"
    )


class IncompleteDetails(BaseModel):
    """Reason of an incomplete response."""

    reason: Literal["max_output_tokens", "content_filter"]


class ResponseFailure(BaseModel):
    """Error of a failed response."""

    code: str = Field(examples=["server_error"])
    message: str


class InputTokensDetails(BaseModel):
    """Parts of the input's tokens."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(BaseModel):
    """Parts of the output's tokens."""

    reasoning_tokens: int


class ResponseUsage(BaseModel):
    """Tokens of a response."""

    input_tokens: int = Field(examples=[12])
    input_tokens_details: InputTokensDetails
    output_tokens: int = Field(examples=[9])
    output_tokens_details: OutputTokensDetails
    total_tokens: int = Field(examples=[21])


class StoredResponse(BaseModel):
    """Response, with what it repeats of its request."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(examples=[_ID])
    object: Literal["response"]
    created_at: int = Field(examples=[_CREATED])
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    model: str = Field(examples=[_MODEL])
    previous_response_id: str | None
    instructions: str | None
    metadata: dict[str, str]
    output: list[dict[str, Any]] = Field(examples=[[_MESSAGE]])
    usage: ResponseUsage | None


class InputTokens(BaseModel):
    """Tokens of a conversation."""

    object: Literal["response.input_tokens"]
    input_tokens: int = Field(examples=[12])


class ResponseDeleted(BaseModel):
    """Deleted response."""

    id: str = Field(examples=[_ID])
    object: Literal["response"]
    deleted: bool = Field(examples=[True])


class ResponseItemList(BaseModel):
    """Page of the items that a model was given."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str
    last_id: str
    has_more: bool


EVENTS = (
    'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", "item_id": '
    '"msg_…", "output_index": 0, "content_index": 0, "delta": "The", "logprobs": [], '
    '"sequence_number": 4}\n\n'
)
