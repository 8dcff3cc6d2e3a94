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
from api.compat.openai.chat.schemas import ChatCompletionRequest, CompletionRequest
from api.compat.openai.embedding_schemas import EmbeddingsRequest
from api.compat.openai.responses.schemas import ResponseRequest
from api.compat.openai.schemas import BatchRequest
from api.schemas.calls import CallRequest
from api.schemas.jobs import JobWithItems, ResubmitRequest

_READ_BY_US = (
    BatchRequest,
    CallRequest,
    ChatCompletionRequest,
    CompletionRequest,
    CountTokensRequest,
    EmbeddingsRequest,
    InferenceRequest,
    JobWithItems,
    MessageBatchRequest,
    MessageRequest,
    ResponseRequest,
    ResubmitRequest,
)
_REF = "#/components/schemas/{model}"
_PLACEHOLDERS = {"integer": 0, "number": 0.0, "boolean": False, "string": "…"}


def install(app: FastAPI) -> None:
    """Serves the completed document; it is built once."""

    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes)
            read = [(model, "validation") for model in _READ_BY_US]
            _, bodies = models_json_schema(read, ref_template=_REF)  # type: ignore[arg-type]
            schemas = document["components"]["schemas"]
            schemas |= bodies["$defs"]
            for schema in schemas.values():
                schema.setdefault("examples", [_example(schema, schemas)])
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]


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
