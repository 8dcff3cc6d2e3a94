"""Schemas of OpenAI's embeddings."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, Strict

from api.http.errors import validated
from api.schemas.calls import MAX_CALL_TIMEOUT_MS
from api.schemas.common import Body, ModelName, whole
from jobs.errors import Fault, Invalid
from jobs.models.inputs.embeddings import MOST_INPUTS, MOST_TOKEN_IDS, contradiction
from jobs.models.inputs.fields import FieldError
from jobs.models.inputs.request_fields import table

_PASSED = table.names("embeddings", "refused") | table.names("embeddings", "label")
"""Fields that pass where their values change nothing."""
_TEXT: dict[str, Any] = {"type": "string"}
_TOKEN_IDS: dict[str, Any] = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0},
    "minItems": 1,
    "maxItems": MOST_TOKEN_IDS,
}
_LIST: dict[str, Any] = {
    "type": "array",
    "items": {"anyOf": [_TEXT, _TOKEN_IDS]},
    "minItems": 1,
    "maxItems": MOST_INPUTS,
}
_INPUT: dict[str, Any] = {
    "description": "a text, its token ids, or a list of either",
    "anyOf": [_TEXT, _TOKEN_IDS, _LIST],
}
# Bounds stand first, or /openapi.json lacks them.
_Dimensions = Annotated[int, Field(ge=1), Strict(), BeforeValidator(whole)]
_Truncation = Annotated[int, Field(ge=-1), Strict(), BeforeValidator(whole)]
_Timeout = Annotated[int, Field(ge=1, le=MAX_CALL_TIMEOUT_MS), Strict(), BeforeValidator(whole)]


class EmbeddingsRequest(Body):
    """The body of POST /v1/embeddings."""

    model: ModelName = Field(
        min_length=1,
        max_length=200,
        description="name@version; or a name: its newest version that a worker is ready for",
    )
    input: Any = Field(
        json_schema_extra=_INPUT, examples=[["how do I parse a JSON document", "a black cat"]]
    )
    encoding_format: Literal["float", "base64"] | None = Field(default=None, examples=["float"])
    dimensions: _Dimensions | None = Field(
        default=None,
        description="numbers that each vector is cut to before it is normalized",
        examples=[256],
    )
    use_activation: bool | None = Field(
        default=None, strict=True, description="vLLM's field: vectors are normalized"
    )
    normalize: bool | None = Field(
        default=None, strict=True, description="the same, as it was named before"
    )
    truncate_prompt_tokens: _Truncation | None = Field(
        default=None,
        description="vLLM's field: most tokens of a text, which is cut; -1: as many as the model "
        "takes",
        examples=[-1],
    )
    user: str | None = Field(default=None, description="for routes that keep users at a version")
    safety_identifier: str | None = Field(default=None, description="the same; goes before `user`")
    timeout_ms: _Timeout | None = Field(
        default=None,
        description="deadline of the response; default: 10,000, plus 50 per further input",
    )


def read_embeddings(value: Any) -> EmbeddingsRequest:
    """Reads a body, without the fields that change nothing. Raises Invalid."""
    own = EmbeddingsRequest.model_fields.keys()
    if isinstance(value, dict) and not value.keys() <= own:
        # A field that nobody has is refused also where it is null, as the document has it.
        more = {n: part if n in _PASSED else True for n, part in value.items() if n not in own}
        try:
            table.check("embeddings", more)
        except FieldError as error:
            code = "invalid_value" if error.field in _PASSED else "extra_forbidden"
            raise Invalid(str(error), faults=[Fault((error.field,), code, str(error))]) from None
        value = {name: part for name, part in value.items() if name in own}
    body = validated(EmbeddingsRequest, value)
    if both := contradiction(value):
        field, words = both
        raise Invalid(words, faults=[Fault((field,), "invalid_value", words)])
    return body


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(
        description="numbers, or base64 of 32-bit floats", examples=[[0.018, -0.042]]
    )


class EmbeddingsUsage(BaseModel):
    """Tokens of all inputs."""

    prompt_tokens: int = Field(examples=[5])
    total_tokens: int = Field(examples=[5])
    truncated: int = Field(default=0, description="tokens of all that were cut away, if any")


class EmbeddingsResponse(BaseModel):
    """Vectors in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: ModelName
    usage: EmbeddingsUsage
    degraded: dict[str, Any] = Field(
        default_factory=dict, description="how it was degraded instead of rejected"
    )
