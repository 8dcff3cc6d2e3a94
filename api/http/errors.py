"""Errors as problem+json (RFC 9457): one handler for all of them."""

import logging
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from redis import RedisError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path

from api.http import rate_limit_headers
from api.http.request_id import request_id
from jobs import clock, ids
from jobs.errors import (
    Fault,
    Invalid,
    Malformed,
    MillraceError,
    QuotaExceeded,
    TooLarge,
    Unavailable,
)
from jobs.store.db import CONNECTION_ERRORS

_log = logging.getLogger(__name__)
_TYPES = "https://millrace.dev/problems/"
_MOST_QUOTED = 100  # characters of what a client wrote
_AN_ID = re.compile(rf"\^\(([a-z|]+)\){re.escape(f'_{ids.DIGITS}$')}")  # the pattern of one


def as_json(error: MillraceError, id: str) -> dict[str, Any]:
    """RFC 9457's object. id: the request's."""
    body: dict[str, Any] = {
        "type": _TYPES + error.code.replace("_", "-"),
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "retryable": error.retryable,
        "request_id": id,
        **error.more,
    }
    if error.faults:
        body["errors"] = [fault.as_json() for fault in error.faults]
    return body


Wording = Callable[[MillraceError, str], Any]
"""The JSON object of an error, by who words it; with the request's id."""

WORDINGS: dict[str, tuple[str, Wording]] = {"": ("application/problem+json", as_json)}
"""By the beginning of the path: its media type and its wording. The longest that fits is used."""


def problem(error: MillraceError, id: str, path: str = "") -> Response:
    """The answer that an error is, to a request for this path."""
    fitting = (start for start in WORDINGS if not start or f"{path}/".startswith(f"{start}/"))
    door = max(fitting, key=len)
    media_type, wording = WORDINGS[door]
    headers = {"X-Request-Id": id}
    if door:  # others' clients try again whatever is a 409, 429 or 5xx, unless they are told
        headers["X-Should-Retry"] = str(error.retryable).lower()
    if isinstance(error, QuotaExceeded):
        headers |= error.headers or rate_limit_headers.of_job(error)
    if error.challenge:
        headers["WWW-Authenticate"] = error.challenge
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
        headers["Retry-After-Ms"] = str(math.ceil(error.retry_after_s * 1000))
    status = 400 if door and error.code == Invalid.code else error.status  # as other APIs have it
    return Response(orjson.dumps(wording(error, id)), status, headers, media_type=media_type)


def error_response(error: Exception, id: str, path: str = "") -> Response:
    """What an error of ours, or any that escaped us, is answered with."""
    if isinstance(error, MillraceError):
        return problem(error, id, path)
    if isinstance(error, ClientDisconnect):
        return problem(Malformed("the body ended early"), id, path)
    if isinstance(error, (*CONNECTION_ERRORS, RedisError)):
        _log.warning("%s", error, extra={"request_id": id})
        what = "Redis" if isinstance(error, RedisError) else "the database"
        soon_s = 1 + clock.jitter(1)
        return problem(Unavailable(f"{what} can't be reached", retry_after_s=soon_s), id, path)
    _log.error("unexpected", exc_info=error, extra={"request_id": id})
    return problem(MillraceError("this is our fault; the log has it"), id, path)


def faults_of(errors: Sequence[Any], base: tuple[str | int, ...] = ()) -> list[Fault]:
    """Pydantic's errors as ours."""
    return [Fault((*base, *error["loc"]), error["type"], _said(error)) for error in errors]


def _said(error: Any) -> str:
    """Pydantic's message; in words of our own where those are no help to a client."""
    match error["type"]:
        case "value_error":
            return str(error["ctx"]["error"])
        case "string_pattern_mismatch" if an_id := _AN_ID.fullmatch(error["ctx"]["pattern"]):
            begins = " or ".join(f"{head}_" for head in an_id[1].split("|"))
            return f"{_quoted(error['input'])} is no id; one begins with {begins}"
    return str(error["msg"])


def _quoted(text: str) -> str:
    """What a client wrote, as far as it is worth repeating."""
    return repr(text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…")


class _Http(MillraceError):
    """What the framework itself refuses: an unknown path, a wrong method."""

    def __init__(self, error: HTTPException, request: Request) -> None:
        path, method, detail = _quoted(request.url.path), request.method, str(error.detail)
        if error.status_code == 404:
            detail = f"there is no {method} {path} here; /docs shows what there is"
        elif error.status_code == 405 and (methods := _methods(request)):
            detail = f"{path} takes {', '.join(sorted(methods))}, not {method}"
        super().__init__(detail)
        self.status = error.status_code  # type: ignore[misc]
        self.code = {404: "no_such_route", 405: "method_not_allowed"}.get(  # type: ignore[misc]
            error.status_code, "http_error"
        )
        self.title = str(error.detail)  # type: ignore[misc]


def _methods(request: Request) -> set[str]:
    """What this path allows, over all its routes: Starlette names those of the first."""
    return {
        method.upper()
        for path, operations in request.app.openapi()["paths"].items()
        if compile_path(path)[0].match(request.url.path)
        for method in operations
    }


def install(app: FastAPI) -> None:
    """Makes every error that leaves a route a problem."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        faults = faults_of(error.errors())
        detail = "; ".join(f"{'.'.join(map(str, f.loc))}: {f.message}" for f in faults)
        refused = Invalid(detail, faults=faults)
        return problem(refused, request_id(request.scope), request.url.path)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        known = TooLarge(str(error.detail)) if error.status_code == 413 else _Http(error, request)
        response = problem(known, request_id(request.scope), request.url.path)
        response.headers.update(error.headers or {})
        if error.status_code == 405:
            response.headers["Allow"] = ", ".join(sorted(_methods(request)))
        return response

    async def other(request: Request, error: Exception) -> Response:
        return error_response(error, request_id(request.scope), request.url.path)

    for kind in (MillraceError, *CONNECTION_ERRORS, RedisError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, other)
