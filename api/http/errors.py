"""Errors as problem+json (RFC 9457); one handler for all of them."""

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from psycopg.errors import QueryCanceled
from pydantic import BaseModel, ValidationError
from redis import RedisError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path

from api.http import rate_limit_headers
from api.http.request_id import KEY, api_path, headers_of, request_id
from jobs import clock, ids
from jobs.errors import (
    Fault,
    InsufficientStorage,
    Invalid,
    Malformed,
    MillraceError,
    QuotaExceeded,
    RangeNotSatisfiable,
    TooLarge,
    Unavailable,
    UnsupportedMedia,
    is_disk_full,
)
from jobs.store.db import CONNECTION_ERRORS

MODEL_HEADER = "X-Millrace-Model"
"""Header of an answer: the version (name@version) that made it, or failed to."""

_log = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)
_TYPES = "https://millrace.dev/problems/"
_DISK_FULL_S = 30.0  # Retry-After where a disk is full
_MAX_QUOTED = 100  # characters of a client's text
_ALIKE = 0.75  # similarity of a path that is named as the nearest one, 0 to 1
_PLACEHOLDER = re.compile(r"/\{[^/]*\}")
_AN_ID = re.compile(f"/[a-z]+_{ids.DIGITS}(?=/|$)")
_ID_PATTERN = re.compile(rf"\^\(([a-z|]+)\){re.escape(f'_{ids.DIGITS}$')}")


def problem_object(error: MillraceError, id: str) -> dict[str, Any]:
    """Returns RFC 9457's object. `id` is the request's."""
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


#: Renders an error as a JSON object; gets the request's id.
ErrorFormat = Callable[[MillraceError, str], Any]

#: Media type and format of errors by path prefix; the longest match is used.
ERROR_FORMATS: dict[str, tuple[str, ErrorFormat]] = {
    "": ("application/problem+json", problem_object)
}

#: Headers by which an API tells of quotas, made of RateLimit and RateLimit-Policy; by path prefix.
QUOTA_HEADERS: dict[str, Callable[[Mapping[str, str]], Mapping[str, str]]] = {}

#: Status of errors where it is another one, by path prefix and code.
ERROR_STATUSES: dict[str, dict[str, int]] = {}


def problem_response(error: MillraceError, id: str, path: str = "") -> Response:
    """Returns the response of an error to a request for this path."""
    prefixes = (start for start in ERROR_FORMATS if not start or f"{path}/".startswith(f"{start}/"))
    prefix = max(prefixes, key=len)
    media_type, format_error = ERROR_FORMATS[prefix]
    headers = {name.decode(): id.decode() for name, id in headers_of({"path": path, KEY: id})}
    if prefix:  # others' clients try again whatever is a 409, 429 or 5xx, unless they are told
        headers["X-Should-Retry"] = str(error.retryable).lower()
    if isinstance(error, QuotaExceeded):
        quota_headers = error.headers or rate_limit_headers.quota_headers(error)
        own = QUOTA_HEADERS[prefix](quota_headers) if prefix in QUOTA_HEADERS else {}
        headers = {**headers, **quota_headers, **own}
    if error.model:
        headers[MODEL_HEADER] = error.model
    if isinstance(error, RangeNotSatisfiable):
        headers["Content-Range"] = f"bytes */{error.more['bytes']}"
    if error.challenge:
        headers["WWW-Authenticate"] = error.challenge
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
        headers["Retry-After-Ms"] = str(math.ceil(error.retry_after_s * 1000))
    status = 400 if prefix and error.code == Invalid.code else error.status  # as those APIs do
    status = ERROR_STATUSES.get(prefix, {}).get(error.code, status)
    return Response(orjson.dumps(format_error(error, id)), status, headers, media_type=media_type)


def error_response(error: Exception, id: str, path: str = "") -> Response:
    """Returns the response of any exception."""
    return problem_response(to_error(error, id), id, path)


def to_error(error: Exception, id: str) -> MillraceError:
    """Returns the error that an exception stands for; unknown ones are logged, and are a 500."""
    if isinstance(error, MillraceError):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid(error.errors())
    if isinstance(error, ClientDisconnect):
        return Malformed("the body ended early")
    if is_disk_full(error):
        _log.error("%s", error, extra={"request_id": id})
        where = "temporary files" if isinstance(error, OSError) else "the database"
        message = f"the disk of {where} is full: nothing was stored, try again later"
        return InsufficientStorage(message, retry_after_s=_DISK_FULL_S)
    if isinstance(getattr(error, "orig", error), QueryCanceled):
        return Unavailable("the database took too long; ask for less at a time", retry_after_s=1)
    if isinstance(error, (*CONNECTION_ERRORS, RedisError)):
        _log.warning("%s", error, extra={"request_id": id})
        service = "Redis" if isinstance(error, RedisError) else "the database"
        return Unavailable(f"{service} can't be reached", retry_after_s=1 + clock.jitter(1))
    _log.error("unexpected", exc_info=error, extra={"request_id": id})
    return MillraceError("internal error; the log of the api has details")


def validated(schema: type[M], value: Any) -> M:
    """Validates a request's body. Raises Invalid."""
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise _invalid(error.errors(include_url=False)) from None


def _invalid(errors: Sequence[Any]) -> Invalid:
    faults = faults_of(errors)
    detail = "; ".join(map(_told, faults))
    return Invalid(detail, faults=faults)


def _told(fault: Fault) -> str:
    return f"{'.'.join(map(str, fault.loc))}: {fault.message}" if fault.loc else fault.message


def faults_of(errors: Sequence[Any], base: tuple[str | int, ...] = ()) -> list[Fault]:
    """Converts pydantic's errors to faults."""
    return [Fault((*base, *error["loc"]), error["type"], _fault_message(error)) for error in errors]


def _fault_message(error: Any) -> str:
    """Returns pydantic's message, or a clearer one."""
    match error["type"]:
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{'must' if error['loc'] else 'the body must'} be a JSON object"
        case "value_error":
            return str(error["ctx"]["error"])
        case "string_pattern_mismatch" if an_id := _ID_PATTERN.fullmatch(error["ctx"]["pattern"]):
            return _id_message(error["input"], [f"{head}_" for head in an_id[1].split("|")])
    return str(error["msg"])


def _id_message(text: str, heads: Sequence[str]) -> str:
    """Says how a text differs from an id. heads: beginnings of ids, such as `job_`."""
    if head := next((head for head in heads if text.startswith(head)), ""):
        needed = f"after {head} come {ids.LENGTH} digits and lower-case letters"
        return f"{_quoted(text)} is no id: {needed}"
    return f"{_quoted(text)} is no id; one begins with {' or '.join(heads)}"


def _quoted(text: str) -> str:
    """Quotes a client's text, shortened."""
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")


class _FrameworkError(MillraceError):
    """Error of the framework itself: an unknown path, a wrong method."""

    def __init__(self, error: HTTPException, request: Request) -> None:
        path, method, detail = _quoted(request.url.path), request.method, str(error.detail)
        if error.status_code == 404:
            near = _nearest(request)
            detail = f"there is no {method} {path} here; " + (
                f"the nearest is {near}" if near else "/docs shows what there is"
            )
        elif error.status_code == 405 and (allowed := _methods(request)):
            detail = f"{path} takes {', '.join(sorted(allowed))}, not {method}"
        super().__init__(detail)
        self.status = error.status_code  # type: ignore[misc]
        self.code = {404: "no_such_route", 405: "method_not_allowed"}.get(  # type: ignore[misc]
            error.status_code, "http_error"
        )
        self.title = str(error.detail)  # type: ignore[misc]


def _methods(request: Request) -> set[str]:
    """Returns the methods of this path over all its routes; Starlette names those of the first."""
    path = request.url.path
    return {
        method
        for pattern, methods in _patterns(request.app)
        if pattern.match(path)
        for method in methods
    }


def _nearest(request: Request) -> str:
    """Returns the documented operation whose path is spelled most alike: `POST /jobs`; "": none."""
    asked = request.url.path
    if len(asked) > _MAX_QUOTED:
        return ""
    paths: Mapping[str, Mapping[str, Any]] = request.app.openapi()["paths"]
    shapes = {_PLACEHOLDER.sub("/{}", path): path for path in paths}
    found = get_close_matches(_AN_ID.sub("/{}", asked), shapes, 1, _ALIKE)
    if not found:
        return ""
    path = shapes[found[0]]
    methods = [method.upper() for method in paths[path]]
    return f"{request.method if request.method in methods else methods[0]} {path}"


@lru_cache(maxsize=1)
def _patterns(app: FastAPI) -> Sequence[tuple[re.Pattern[str], Sequence[str]]]:
    """Returns a pattern of each documented path, and its methods; compiled once."""
    return [
        (compile_path(path)[0], [method.upper() for method in operations])
        for path, operations in app.openapi()["paths"].items()
    ]


def install(app: FastAPI) -> None:
    """Makes every error that leaves a route a problem."""

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        known = {400: Malformed, 413: TooLarge, 415: UnsupportedMedia}.get(error.status_code)
        translated = known(str(error.detail)) if known else _FrameworkError(error, request)
        response = problem_response(translated, request_id(request.scope), api_path(request.scope))
        response.headers.update(error.headers or {})
        if error.status_code == 405:
            response.headers["Allow"] = ", ".join(sorted(_methods(request)))
        return response

    async def other(request: Request, error: Exception) -> Response:
        return error_response(error, request_id(request.scope), api_path(request.scope))

    known = (MillraceError, RequestValidationError, RedisError, ClientDisconnect, OSError)
    for kind in (*known, *CONNECTION_ERRORS, Exception):
        app.add_exception_handler(kind, other)
