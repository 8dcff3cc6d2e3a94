"""/openapi.json: what FastAPI finds out by itself, and the bodies that we read ourselves."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.routes.openai.schemas import BatchRequest
from api.schemas import CallRequest, JobWithItems

_REF = "#/components/schemas/{model}"


def install(app: FastAPI) -> None:
    """Serves the whole document; it is built once."""

    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes)
            _, bodies = models_json_schema(
                [(body, "validation") for body in (CallRequest, JobWithItems, BatchRequest)],
                ref_template=_REF,
            )
            document["components"]["schemas"] |= bodies["$defs"]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]
