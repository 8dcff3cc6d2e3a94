"""Error pages: problem, place, and remedy."""

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from api.dashboard.rendering import layout
from api.http.errors import to_error
from api.http.request_id import request_id
from jobs.errors import (
    Forbidden,
    Invalid,
    MillraceError,
    NotConfigured,
    NotFound,
    Unauthenticated,
    Unavailable,
)

_REMEDIES: tuple[tuple[type[MillraceError], str], ...] = (
    (Forbidden, "Sign in with a credential that has this right; an admin can make one: "
     "`millrace keys create --role operator`."),
    (NotFound, "It may have been deleted, or it belongs to another tenant. Search the lists."),
    (NotConfigured, "Set it for every api process and restart them."),
    (Unavailable, "Jobs are safe. Reload this page in a moment."),
    (Invalid, "Correct the input and try again."),
)  # fmt: skip
_CLIENT_ERROR = "Nothing has been changed. Go back and reload the page."
_SERVER_ERROR = "This is a server error. The api's log has details under this request id."


def answer(request: Request, error: Exception) -> Response:
    """Returns the page of an error, or a redirect to the sign-in."""
    if isinstance(error, HTTPException):
        error = Invalid(str(error.detail))
    known = to_error(error, request_id(request.scope))
    if request.headers.get("accept", "") == "text/event-stream":
        return Response(known.detail, known.status, media_type="text/plain")
    if isinstance(known, Unauthenticated) and not request.url.path.endswith("/sign-in"):
        return _sign_in(request)
    other = _SERVER_ERROR if known.status >= 500 else _CLIENT_ERROR
    remedy = next((words for kind, words in _REMEDIES if isinstance(known, kind)), other)
    viewer = getattr(request.state, "viewer", None)
    return layout.render(
        request, "failure.html", viewer=viewer, status=known.status, error=known, remedy=remedy,
        path=request.url.path,
    )  # fmt: skip


def _sign_in(request: Request) -> Response:
    """Redirects to the sign-in.

    After a link from another site the browser withholds the strict cookie; a page of ours that
    reloads makes it send the cookie.
    """
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.method != "GET":
        return layout.redirect(layout.to_sign_in(layout.PREFIX))
    if request.headers.get("sec-fetch-site") == "cross-site":
        return layout.render(request, "again.html", viewer=None, path=path)
    return layout.redirect(layout.to_sign_in(path))
