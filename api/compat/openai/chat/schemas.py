"""Schemas of chat completions and completions, for the documentation: bodies are read by
api/compat/generation/preparation.py."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.calls import MAX_CALL_TIMEOUT_MS
from api.schemas.common import Body
from jobs.models.inputs.generation import MOST_CHOICES, MOST_LOGPROBS
from jobs.models.inputs.request_fields.values import LONGEST_STOP, MOST_STOPS

_CONVERSATION = [{"role": "user", "content": "What is a millrace?"}]
_CHAT_ID = "chatcmpl-01kajf7q5rf0h8zq2m4w6y8a0b"
_TEXT_ID = "cmpl-01kajf7q5rf0h8zq2m4w6y8a0b"
_MODEL = "smollm2"
_CREATED = 1_763_629_200
_Stop = Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]
_Penalty = Annotated[float, Field(ge=-2, le=2)]
_StopReason = Annotated[
    str | int | None,
    Field(description="vLLM's field: the stop string or token that ended the text"),
]
_PromptLogprobs = Annotated[
    list[dict[str, dict[str, Any]] | None] | None,
    Field(
        description="vLLM's field, where it was asked for: `logprob`, `rank` and `decoded_token` "
        "of each token of the prompt and the likeliest in its place, by id; null for the first"
    ),
]
_PromptTokenIds = Annotated[
    list[int] | None, Field(description="of the prompt, where `return_token_ids` asked for them")
]
_TokenIds = Annotated[
    list[int] | None,
    Field(description="of the text, with what ended it, where `return_token_ids` asked for them"),
]
_Timeout = Annotated[int, Field(ge=1, le=MAX_CALL_TIMEOUT_MS)]


class StreamOptions(Body):
    """Options of a stream."""

    include_usage: bool = Field(
        default=False, description="one more chunk before the end has the usage", examples=[True]
    )
    continuous_usage_stats: bool = Field(
        default=False, description="vLLM's field: each chunk has the usage so far"
    )


class JsonSchemaFormat(BaseModel):
    """Schema that the text is valid by."""

    name: str = Field(default="answer", examples=["point"])
    schema_: dict[str, Any] = Field(alias="schema", examples=[{"type": "object"}])
    strict: bool | None = Field(
        default=None, description="true: keywords that can't be enforced are refused"
    )
    description: str | None = None


class ResponseFormat(BaseModel):
    """Form of the whole text."""

    type: Literal["text", "json_object", "json_schema"] = Field(examples=["text"])
    json_schema: JsonSchemaFormat | None = None


class _GenerationRequest(Body):
    """Fields that both APIs have; others of OpenAI's are accepted where they change no output."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(
        description="name@version; or a name: its newest version that a worker is ready for",
        examples=[_MODEL],
    )
    stream: bool | None = Field(default=None, examples=[False])
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=MOST_CHOICES, description="choices")
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="0: the likeliest token each time"
    )
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, description="-1 and 0: no bound; vLLM's field")
    min_p: float | None = Field(default=None, ge=0, le=1, description="vLLM's field")
    seed: int | None = Field(
        default=None,
        ge=-(2**63),
        le=2**63 - 1,
        description="the same seed gives the same text; choice i has seed + i",
    )
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    repetition_penalty: float | None = Field(default=None, gt=0, le=10, description="vLLM's field")
    logit_bias: dict[str, float] | None = Field(default=None, description="-100 to 100 by token id")
    stop: _Stop | Annotated[list[_Stop], Field(max_length=MOST_STOPS)] | None = None
    min_tokens: int | None = Field(default=None, ge=0, description="vLLM's field")
    prompt_logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MOST_LOGPROBS,
        description="vLLM's field: log probabilities of the prompt's tokens, each with so many of "
        "the likeliest",
    )
    return_token_ids: bool | None = Field(
        default=None, description="vLLM's field: ids of the tokens of prompt and text"
    )
    response_format: ResponseFormat | None = None
    regex: str | None = Field(default=None, description="the whole text matches it")
    choice: list[str] | None = Field(default=None, description="the whole text is one of them")
    grammar: str | None = Field(default=None, description="grammar of the text, as Lark has it")
    structured_outputs: dict[str, Any] | None = Field(
        default=None, description="vLLM's field: one of `json`, `regex`, `choice`, `grammar`"
    )
    timeout_ms: _Timeout | None = Field(
        default=None, description="deadline of the whole answer; default: 600,000"
    )
    first_token_ms: _Timeout | None = Field(
        default=None, description="deadline of a stream's first token; default: 60,000"
    )
    idle_ms: _Timeout | None = Field(
        default=None, description="longest silence of a stream after it; default: 30,000"
    )


class ChatMessage(BaseModel):
    """Message of a conversation; other fields as OpenAI has them."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = Field(
        default=None, description="text, or parts of the type `text`"
    )


class ChatCompletionRequest(_GenerationRequest):
    """The body of POST /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1, examples=[_CONVERSATION])
    max_completion_tokens: int | None = Field(
        default=None, ge=1, description="default: what the model's context leaves"
    )
    max_tokens: int | None = Field(default=None, ge=1, description="its older name")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(
        default=None, ge=0, le=MOST_LOGPROBS, description="goes with `logprobs`"
    )
    tools: list[dict[str, Any]] | None = Field(
        default=None, description="functions, for the model's chat template"
    )
    tool_choice: Literal["auto", "none", "required"] | dict[str, Any] | None = Field(
        default=None, description="an object names the function that is called"
    )
    parallel_tool_calls: bool | None = Field(default=None, description="false: one call at most")


class BatchedChatRequest(ChatCompletionRequest):
    """The body of POST /v1/chat/completions/batch."""

    stream: Literal[False] | None = Field(default=None, description="the answers come together")
    stream_options: None = None
    messages: list[Annotated[list[ChatMessage], Field(min_length=1)]] = Field(  # type: ignore[assignment]
        min_length=1,
        max_length=MOST_CHOICES,
        description="conversations; choice j of conversation i has the index i * n + j",
        examples=[[_CONVERSATION, _CONVERSATION]],
    )


class CompletionRequest(_GenerationRequest):
    """The body of POST /v1/completions."""

    prompt: str | list[int] | list[str] | list[list[int]] = Field(
        description="a text or its token ids, or a list of either; choice j of prompt i has the "
        "index i * n + j",
        examples=["A millrace is"],
    )
    max_tokens: int | None = Field(
        default=None, ge=0, description="default: 16; 0 goes with `echo`: the prompt alone"
    )
    logprobs: int | None = Field(default=None, ge=0, le=MOST_LOGPROBS)
    echo: bool | None = Field(
        default=None, description="the text begins with the prompt, `logprobs` with its tokens"
    )


class PromptTokensDetails(BaseModel):
    """Parts of the prompt's tokens."""

    cached_tokens: int = Field(default=0, examples=[0])


class CompletionUsage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int = Field(examples=[12])
    completion_tokens: int = Field(examples=[9])
    total_tokens: int = Field(examples=[21])
    prompt_tokens_details: PromptTokensDetails | None = None
    truncated: int = Field(default=0, description="tokens of the prompt that were cut away, if any")


class AssistantMessage(BaseModel):
    """Message that the model generated."""

    role: Literal["assistant"]
    content: str | None = Field(examples=["The channel that leads water to a mill."])
    refusal: None = None
    tool_calls: list[dict[str, Any]] | None = Field(
        default=None, description="parsed from the text where the request has tools"
    )


class ChatChoice(BaseModel):
    """One answer of several."""

    index: int
    message: AssistantMessage
    logprobs: dict[str, Any] | None = None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"] = Field(
        examples=["stop"]
    )
    stop_reason: _StopReason = None
    prompt_logprobs: _PromptLogprobs = None
    prompt_token_ids: _PromptTokenIds = None
    token_ids: _TokenIds = None


class ChatCompletion(BaseModel):
    """The answer of POST /v1/chat/completions."""

    id: str = Field(examples=[_CHAT_ID])
    object: Literal["chat.completion"]
    created: int = Field(examples=[_CREATED])
    model: str = Field(examples=[_MODEL])
    choices: list[ChatChoice]
    usage: CompletionUsage | None = None
    prompt_logprobs: _PromptLogprobs = None
    prompt_token_ids: _PromptTokenIds = None


class TextChoice(BaseModel):
    """One text of several."""

    index: int
    text: str = Field(examples=[" a channel that leads water to a mill."])
    logprobs: dict[str, Any] | None = None
    finish_reason: Literal["stop", "length", "content_filter"] = Field(examples=["stop"])
    stop_reason: _StopReason = None
    prompt_logprobs: _PromptLogprobs = None
    prompt_token_ids: _PromptTokenIds = None
    token_ids: _TokenIds = None


class TextCompletion(BaseModel):
    """The answer of POST /v1/completions."""

    id: str = Field(examples=[_TEXT_ID])
    object: Literal["text_completion"]
    created: int = Field(examples=[_CREATED])
    model: str = Field(examples=[_MODEL])
    choices: list[TextChoice]
    usage: CompletionUsage | None = None


def _chunk(id: str, object: str, choice: str) -> str:
    head = f'"id": "{id}", "object": "{object}", "created": {_CREATED}, "model": "{_MODEL}"'
    return f'data: {{{head}, "choices": [{choice}]}}\n\ndata: [DONE]\n\n'


CHAT_EVENTS = _chunk(
    _CHAT_ID,
    "chat.completion.chunk",
    '{"index": 0, "delta": {"content": "The"}, "logprobs": null, "finish_reason": null}',
)
TEXT_EVENTS = _chunk(
    _TEXT_ID,
    "text_completion",
    '{"index": 0, "text": " a", "logprobs": null, "finish_reason": null}',
)
