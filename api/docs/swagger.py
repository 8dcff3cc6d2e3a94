"""Swagger UI at /docs, from /openapi.json. All assets are served here, so that it works without
the internet and runs no third party's script."""

import json
from importlib import resources

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from api.http.security import PAGE_POLICY

PATH = "/docs"

# Swagger UI sets styles on its elements, and draws its icons from data: URLs.
_POLICY = (
    f"{PAGE_POLICY}; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:"
)
_ASSETS = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
_OPTIONS = {
    "url": "/openapi.json",
    "dom_id": "#swagger-ui",
    "deepLinking": True,
    "displayRequestDuration": True,
    "persistAuthorization": False,  # a key lives no longer than the page
    "validatorUrl": None,  # it would send the document to a third party
}
_START = f"window.ui = SwaggerUIBundle({json.dumps(_OPTIONS)});\n"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" type="image/png" href="/docs/favicon-32x32.png">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""


def install(app: FastAPI) -> None:
    """Adds the page and its assets."""

    async def docs(request: Request) -> Response:
        headers = {"Content-Security-Policy": _POLICY}
        return Response(_PAGE.format(title=app.title), headers=headers, media_type="text/html")

    async def start(request: Request) -> Response:
        return Response(_START, media_type="text/javascript")

    async def asset(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        return Response(_bytes(name), media_type=_ASSETS[name])

    app.add_route(PATH, docs, include_in_schema=False)
    app.add_route(f"{PATH}/start.js", start, include_in_schema=False)
    for name in _ASSETS:
        app.add_route(f"{PATH}/{name}", asset, include_in_schema=False)


def _bytes(name: str) -> bytes:
    """Reads an asset on each request: the page is opened rarely, and its script has 1.7 MB."""
    return resources.files("fastapi_swagger").joinpath("resources", name).read_bytes()
