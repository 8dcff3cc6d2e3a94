"""Schemas of OpenAI's embeddings."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict

from api.schemas.calls import MAX_CALL_TIMEOUT_MS
from api.schemas.common import whole
from jobs.models.inputs.embeddings import MOST_INPUTS, MOST_TOKEN_IDS

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
_Timeout = Annotated[int, Field(ge=1, le=MAX_CALL_TIMEOUT_MS), Strict(), BeforeValidator(whole)]


class EmbeddingsRequest(BaseModel):
    """The body of POST /v1/embeddings."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "model": "minilm",
                "input": ["how do I parse a JSON document", "a black cat"],
                "encoding_format": "float",
                "dimensions": 256,
            }
        },
    )

    model: str = Field(
        min_length=1,
        max_length=200,
        description="name@version; or a name: its newest version that a worker is ready for",
    )
    input: Any = Field(json_schema_extra=_INPUT)
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: _Dimensions | None = Field(
        default=None, description="numbers that each vector is cut to before it is normalized"
    )
    user: str | None = Field(default=None, description="accepted and ignored")
    timeout_ms: _Timeout | None = Field(
        default=None,
        description="deadline of the response; default: 10,000, plus 50 per further input",
    )


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="numbers, or base64 of 32-bit floats")


class EmbeddingsUsage(BaseModel):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    """Vectors in the order of the inputs."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "object": "list",
                "data": [{"object": "embedding", "index": 0, "embedding": [0.018, -0.042]}],
                "model": "minilm",
                "usage": {"prompt_tokens": 5, "total_tokens": 5},
            }
        }
    )

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingsUsage
    degraded: dict[str, Any] = Field(
        default_factory=dict, description="how it was degraded instead of rejected"
    )
