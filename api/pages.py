"""/docs and /redoc: the contract for people. Their scripts come from a public host, so they are
there on loopback alone."""

from fastapi import FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

from api.security import PAGE_POLICY
from jobs.settings import LOOPBACK, Settings

_SCRIPTS = "https://cdn.jsdelivr.net"
_POLICY = (
    f"{PAGE_POLICY}; connect-src 'self'; worker-src blob:; font-src https://fonts.gstatic.com; "
    f"script-src 'unsafe-inline' {_SCRIPTS}; "
    f"style-src 'unsafe-inline' {_SCRIPTS} https://fonts.googleapis.com; "
    f"img-src 'self' data: https://fastapi.tiangolo.com https://cdn.redoc.ly"
)


def install(app: FastAPI, settings: Settings) -> None:
    """Where they are served at all."""
    if settings.host not in LOOPBACK:
        return

    async def docs(request: Request) -> Response:
        return _page(get_swagger_ui_html(openapi_url="/openapi.json", title=app.title))

    async def redoc(request: Request) -> Response:
        return _page(get_redoc_html(openapi_url="/openapi.json", title=app.title))

    app.add_route("/docs", docs, include_in_schema=False)
    app.add_route("/redoc", redoc, include_in_schema=False)


def _page(page: Response) -> Response:
    page.headers["Content-Security-Policy"] = _POLICY
    return page
