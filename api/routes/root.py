"""GET /: leads a person to the dashboard, and a program to the APIs."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from jobs.version import VERSION

router = APIRouter(include_in_schema=False)

_LINKS: dict[str, Any] = {
    "dashboard": "/dashboard",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "models": "/models",
    "apis": {
        "calls": "/infer",
        "jobs": "/jobs",
        "openai": "/v1",
        "anthropic": "/v1/messages",
        "open_inference_protocol": "/v2",
    },
}


@router.get("/")
def root(request: Request) -> Response:
    """Redirects a browser, which accepts HTML, to the dashboard; lists the APIs as JSON else."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(_LINKS["dashboard"], 303, {"Vary": "Accept"})
    content = {"name": "Millrace", "version": VERSION, **_LINKS}
    return JSONResponse(content, headers={"Vary": "Accept"})
