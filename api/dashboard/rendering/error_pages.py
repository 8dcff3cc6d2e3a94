"""What goes wrong, as a page: what, where, and how to mend it."""

import logging

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from redis import RedisError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.dashboard.rendering import layout
from api.http.errors import faults_of
from api.http.request_id import request_id
from jobs.errors import (
    Forbidden,
    Invalid,
    Malformed,
    MillraceError,
    NotConfigured,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from jobs.store.db import CONNECTION_ERRORS

_log = logging.getLogger(__name__)
_MEND: tuple[tuple[type[MillraceError], str], ...] = (
    (Forbidden, "Sign in with a credential that has this right; an admin can make one: "
     "`millrace keys create --role operator`."),
    (NotFound, "It may have been deleted, or it belongs to another tenant. Look for it in a list."),
    (NotConfigured, "Set it for every api process and start them again."),
    (Unavailable, "Jobs are safe. This page can be loaded again in a moment."),
    (Invalid, "Correct what was given, and try again."),
)  # fmt: skip
_THEIRS = "Nothing was done. Go back, and load the page again."
_OURS = "This is our fault. The log of the api has more under this request's id."


def answer(request: Request, error: Exception) -> Response:
    """The page that an error is; to sign in, where nobody is."""
    known = _known(request, error)
    if request.headers.get("accept", "") == "text/event-stream":
        return Response(known.detail, known.status, media_type="text/plain")
    if isinstance(known, Unauthenticated) and not request.url.path.endswith("/sign-in"):
        return _sign_in(request)
    other = _OURS if known.status >= 500 else _THEIRS
    mend = next((words for kind, words in _MEND if isinstance(known, kind)), other)
    viewer = getattr(request.state, "viewer", None)
    return layout.page(
        request, "failure.html", viewer=viewer, status=known.status, error=known, mend=mend,
        path=request.url.path,
    )  # fmt: skip


def _known(request: Request, error: Exception) -> MillraceError:
    match error:
        case MillraceError():
            return error
        case RequestValidationError():
            faults = faults_of(error.errors())
            words = "; ".join(f"{'.'.join(map(str, f.loc))}: {f.message}" for f in faults)
            return Invalid(words, faults=faults)
        case HTTPException():
            return Invalid(str(error.detail))
        case ClientDisconnect():
            return Malformed("the body ended early")
        case RedisError():
            return Unavailable("Redis can't be reached")
    if isinstance(error, CONNECTION_ERRORS):
        return Unavailable("the database can't be reached")
    _log.error("%s: unexpected", request_id(request.scope), exc_info=error)
    return MillraceError("something went wrong here")


def _sign_in(request: Request) -> Response:
    """A browser that comes by a link from elsewhere keeps the session's cookie to itself; asked
    once more by a page of ours, it sends it."""
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.method != "GET":
        return layout.go(layout.to_sign_in(layout.PREFIX))
    if request.headers.get("sec-fetch-site") == "cross-site":
        return layout.page(request, "again.html", viewer=None, path=asked)
    return layout.go(layout.to_sign_in(asked))
