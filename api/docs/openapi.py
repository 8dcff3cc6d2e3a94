"""/openapi.json: FastAPI's document, bodies that handlers parse themselves, and examples."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.compat.oip.schemas import InferenceRequest
from api.compat.openai.embedding_schemas import EmbeddingsRequest
from api.compat.openai.schemas import BatchRequest
from api.schemas.calls import CallRequest
from api.schemas.examples import EXAMPLES
from api.schemas.jobs import JobWithItems

_READ_BY_US = (BatchRequest, CallRequest, EmbeddingsRequest, JobWithItems, InferenceRequest)
_REF = "#/components/schemas/{model}"


def install(app: FastAPI) -> None:
    """Serves the completed document; it is built once."""

    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes)
            read = [(model, "validation") for model in _READ_BY_US]
            _, bodies = models_json_schema(read, ref_template=_REF)  # type: ignore[arg-type]
            schemas = document["components"]["schemas"]
            schemas |= bodies["$defs"]
            for name, example in EXAMPLES.items():
                # FastAPI adds the module to a name that two modules use.
                long = f"api__schemas__{name}"
                schemas[long if long in schemas else name]["examples"] = [example]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]
