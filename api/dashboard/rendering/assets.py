"""Style and script of the pages: read once, named by their content, and kept by browsers for as
long as they like."""

from hashlib import sha256
from importlib import resources

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from api.http.security import STATIC_PREFIX
from jobs.errors import NotFound

_TYPES = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
_FILES = {
    name: resources.files("api.dashboard").joinpath("static", name).read_bytes() for name in _TYPES
}
_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable"}


def url(name: str) -> str:
    """Where a file is: another content, another address."""
    return f"{STATIC_PREFIX}{sha256(_FILES[name]).hexdigest()[:12]}/{name}"


def install(app: FastAPI) -> None:
    found = {url(name): name for name in _FILES}

    async def file(request: Request) -> Response:
        name = found.get(request.url.path)
        if name is None:
            raise NotFound("there is no such file; the page is of another release, load it again")
        return Response(_FILES[name], headers=_HEADERS, media_type=_TYPES[name])

    app.add_route(f"{STATIC_PREFIX}{{content}}/{{name}}", file, include_in_schema=False)
