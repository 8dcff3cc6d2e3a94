"""Schemas of Messages, for the documentation: bodies are read by `jobs/dialects/messages.py`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.common import MessageId

_MODEL = "smollm2"
_MESSAGES = [{"role": "user", "content": "What is a millrace?"}]


class _Counted(BaseModel):
    """Fields that decide about the prompt."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(
        description="name@version; or a name: its newest version that a worker is ready for",
        examples=[_MODEL],
    )
    messages: list[dict[str, Any]] = Field(
        min_length=1,
        description="of user and assistant: texts, or blocks text, tool_use and tool_result",
        examples=[_MESSAGES],
    )
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = Field(
        default=None, description="tools of the client, for the model's chat template"
    )


class MessageRequest(_Counted):
    """The body of POST /v1/messages."""

    max_tokens: int = Field(ge=1, examples=[100])
    stream: bool | None = Field(default=None, examples=[False])
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    stop_sequences: list[str] | None = None
    tool_choice: dict[str, Any] | None = Field(
        default=None, description="its type is `auto`, `any`, `tool` or `none`"
    )
    output_config: dict[str, Any] | None = Field(
        default=None,
        description="`format`: the schema that the text is valid by",
        examples=[{"format": {"type": "json_schema", "schema": {"type": "object"}}}],
    )


class CountTokensRequest(_Counted):
    """The body of POST /v1/messages/count_tokens."""


class MessageUsage(BaseModel):
    """Tokens of a message."""

    input_tokens: int = Field(description="without the cached ones", examples=[12])
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int = Field(examples=[9])


class TextBlock(BaseModel):
    """Text of a message."""

    type: Literal["text"]
    text: str = Field(examples=["The channel that leads water to a mill."])


class ToolUseBlock(BaseModel):
    """Call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class Message(BaseModel):
    """The answer of POST /v1/messages."""

    id: MessageId
    type: Literal["message"]
    role: Literal["assistant"]
    model: str = Field(examples=[_MODEL])
    content: list[TextBlock | ToolUseBlock]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"] = Field(
        examples=["end_turn"]
    )
    stop_sequence: str | None = Field(
        default=None, description="the one of `stop_sequences` that ended the text"
    )
    usage: MessageUsage


class CountedTokens(BaseModel):
    """The answer of POST /v1/messages/count_tokens."""

    input_tokens: int = Field(examples=[12])


EVENTS = (
    "event: content_block_delta\n"
    'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": '
    '"The"}}\n\nevent: message_stop\ndata: {"type": "message_stop"}\n\n'
)
