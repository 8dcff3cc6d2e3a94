"""Static files, with a content hash in the URL so that browsers cache them forever."""

import gzip
from hashlib import sha256
from importlib import resources

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from api.http.compression import wants_gzip
from api.http.security import STATIC_PREFIX
from jobs.errors import NotFound

_TYPES = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "filters.js": "text/javascript",
    "keys.js": "text/javascript",
    "live.js": "text/javascript",
    "forms.js": "text/javascript",
    "playground.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_FILES = {
    name: resources.files("api.dashboard").joinpath("static", name).read_bytes() for name in _TYPES
}
_GZIPPED = {name: gzip.compress(file, mtime=0) for name, file in _FILES.items()}
_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}


def url(name: str) -> str:
    """Returns the URL of a file, with its hash."""
    return f"{STATIC_PREFIX}{sha256(_FILES[name]).hexdigest()[:12]}/{name}"


def install(app: FastAPI) -> None:
    """Adds the route of the files."""
    files = {url(name): name for name in _FILES}

    async def file(request: Request) -> Response:
        name = files.get(request.url.path)
        if name is None:
            raise NotFound("no such file; the page is from another release, reload it")
        if wants_gzip(request.headers.get("accept-encoding", "")):
            headers = _HEADERS | {"Content-Encoding": "gzip"}
            return Response(_GZIPPED[name], headers=headers, media_type=_TYPES[name])
        return Response(_FILES[name], headers=_HEADERS, media_type=_TYPES[name])

    app.add_route(f"{STATIC_PREFIX}{{content}}/{{name}}", file, include_in_schema=False)
