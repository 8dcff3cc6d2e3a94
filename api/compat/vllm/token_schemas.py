"""Schemas of tokenization."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from api.compat.openai.chat.schemas import ChatMessage
from api.schemas.calls import MAX_CALL_TIMEOUT_MS
from api.schemas.common import Body

MOST_DETOKENIZED = 1_000_000  #: ids of one request

_IDS = [504, 3644, 2381]
_Token = Annotated[int, Field(ge=0)]


class _TokensRequest(Body):
    model: str = Field(
        description="that generates: name@version; or a name: its newest version that a worker is "
        "ready for",
        examples=["smollm2"],
    )
    timeout_ms: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CALL_TIMEOUT_MS,
        description="deadline of the response; default: 600,000",
    )


class TokenizeRequest(_TokensRequest):
    """The body of POST /tokenize: `prompt` or `messages`. From `tools` on, fields go with the
    latter."""

    prompt: str | None = Field(default=None, examples=["a millrace"])
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool | None = Field(
        default=None,
        description="the tokenizer's special tokens; default: true of `prompt`; false of "
        "`messages`, which have those of the chat template",
    )
    return_token_strs: bool | None = Field(default=None, description="with names of the tokens")
    tools: list[dict[str, Any]] | None = Field(default=None, description="as of chat completions")
    add_generation_prompt: bool | None = Field(
        default=None, description="false: without the beginning of an answer"
    )
    continue_final_message: bool | None = Field(
        default=None,
        description="true, with `add_generation_prompt: false`: it ends within the last message",
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        default=None, description="variables of the chat template"
    )
    reasoning_effort: str | None = Field(default=None, description="as of chat completions")


class DetokenizeRequest(_TokensRequest):
    """The body of POST /detokenize."""

    tokens: list[_Token] = Field(min_length=1, max_length=MOST_DETOKENIZED, examples=[_IDS])


class TokenizeResponse(BaseModel):
    """Tokens of a text or a conversation."""

    count: int = Field(examples=[len(_IDS)])
    max_model_len: int = Field(
        description="most tokens of a sequence; 0: not known", examples=[8192]
    )
    tokens: list[int] = Field(examples=[_IDS])
    token_strs: list[str] | None = Field(
        description="their names in the vocabulary, where they were asked for"
    )


class DetokenizeResponse(BaseModel):
    """Text of tokens."""

    prompt: str = Field(examples=["a millrace"])
