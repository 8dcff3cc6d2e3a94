"""/openapi.json: FastAPI's document, bodies that handlers parse themselves, and an example of each
schema."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.compat.anthropic.messages.schemas import CountTokensRequest, MessageRequest
from api.compat.anthropic.schemas import MessageBatchRequest
from api.compat.oip.schemas import InferenceRequest
from api.compat.openai.chat.schemas import (
    BatchedChatRequest,
    ChatCompletionRequest,
    CompletionRequest,
)
from api.compat.openai.conversations.schemas import (
    ConversationItemsRequest,
    ConversationRequest,
)
from api.compat.openai.embedding_schemas import EmbeddingsRequest
from api.compat.openai.responses.schemas import ResponseRequest
from api.compat.openai.schemas import BatchRequest
from api.compat.vllm.score_schemas import RerankRequest, ScoreRequest
from api.compat.vllm.token_schemas import DetokenizeRequest, TokenizeRequest
from api.schemas.calls import CallRequest
from api.schemas.common import Problem
from api.schemas.jobs import JobWithItems, ResubmitRequest

_READ_BY_US = (
    BatchedChatRequest,
    BatchRequest,
    CallRequest,
    ChatCompletionRequest,
    CompletionRequest,
    ConversationItemsRequest,
    ConversationRequest,
    CountTokensRequest,
    DetokenizeRequest,
    EmbeddingsRequest,
    InferenceRequest,
    JobWithItems,
    MessageBatchRequest,
    MessageRequest,
    RerankRequest,
    ResponseRequest,
    ResubmitRequest,
    ScoreRequest,
    TokenizeRequest,
)
_STATUSES = (400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 500, 503, 504, 507)
_REF = "#/components/schemas/{model}"
_PROBLEM = {
    "description": "What went wrong, as RFC 9457 has it",
    "content": {
        "application/problem+json": {},
        "application/json": {"schema": {"$ref": _REF.format(model=Problem.__name__)}},
    },
}
_FASTAPI_ERRORS = ("HTTPValidationError", "ValidationError")  # of its own 422, which we replace
_PLACEHOLDERS = {"integer": 0, "number": 0.0, "boolean": False, "string": "…"}


def install(app: FastAPI) -> None:
    """Serves the completed document; it is built once."""

    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes)
            _add_problems(document)
            ours = [(model, "validation") for model in (Problem, *_READ_BY_US)]
            _, bodies = models_json_schema(ours, ref_template=_REF)  # type: ignore[arg-type]
            schemas = document["components"]["schemas"]
            schemas |= bodies["$defs"]
            for schema in schemas.values():
                schema.setdefault("examples", [_example(schema, schemas)])
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]


def _add_problems(document: dict[str, Any]) -> None:
    """Adds the errors that any operation may answer to those of its own. Routes don't have them,
    for which FastAPI would build a serializer each."""
    for operation in (one for path in document["paths"].values() for one in path.values()):
        own = operation["responses"]
        if _FASTAPI_ERRORS[0] in str(own.get("422")):
            del own["422"]
        answers = {str(status): _PROBLEM for status in _STATUSES} | own
        operation["responses"] = dict(sorted(answers.items()))
    for name in _FASTAPI_ERRORS:
        document["components"]["schemas"].pop(name, None)


def _example(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """Composes an example of a schema from those of its fields; optional fields that have none are
    left out, and those that may be null are null."""
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for keyword in ("examples", "enum"):
        if keyword in schema:
            return schema[keyword][0]
    if "const" in schema:
        return schema["const"]
    if "anyOf" in schema:
        options = schema["anyOf"]
        return None if {"type": "null"} in options else _example(options[0], schemas)
    if "properties" in schema:
        required = schema.get("required", ())
        return {
            name: _example(field, schemas)
            for name, field in schema["properties"].items()
            if name in required or field.keys() & {"const", "examples"}
        }
    if schema.get("type") == "array":
        return [_example(schema["items"], schemas)]
    return _PLACEHOLDERS.get(schema.get("type", ""), {})
