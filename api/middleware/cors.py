"""CORS: pages of named origins may call the api from a browser. Without a setting none may."""

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_ANY = ("*",)  # headers of requests, and of answers that scripts may read: no cookie is among them


def allowing(app: ASGIApp, origins: str) -> ASGIApp:
    """Returns the application for pages of these origins (a,b; *: any), or itself without any.
    Preflights need no key."""
    if not origins:
        return app
    allowed = [origin.strip().rstrip("/") for origin in origins.split(",")]
    return CORSMiddleware(app, allowed, _METHODS, _ANY, expose_headers=_ANY)
