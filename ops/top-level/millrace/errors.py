"""Errors: one tree.

MillraceError
├── APIError                       a request failed
│   ├── APIConnectionError         nobody answered, or the connection broke
│   │   └── APITimeoutError
│   └── APIStatusError             the api refused it
│       ├── BadRequestError            400
│       ├── AuthenticationError        401
│       ├── PermissionDeniedError      403
│       ├── NotFoundError              404
│       ├── ConflictError              409
│       ├── UnprocessableEntityError   422
│       ├── RateLimitError             429
│       └── InternalServerError        500 and above
├── InputError                     inputs that can't be sent
├── ItemError                      an item of a job has no output
├── JobFailed                      a job whose items could not be read
├── JobChanged                     a job was retried while its results were read
├── StreamError                    a stream ended in an error
├── VerificationError              a webhook that is not the platform's
└── WaitTimeout                    a job has not ended in time
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

_MAX_FAULTS = 20  # that a message lists
_MAX_TEXT = 500  # characters of an answer that is no JSON
_TEMPORARY = frozenset({408, 429, 502, 503, 504, 507})

Place = Callable[[int], Mapping[str, Any]]
"""Place of a line of a request in the file that it came from: file, and line, row or element."""


class MillraceError(Exception):
    """Root of the tree."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the text and the attributes: what made them isn't there any more."""
        return _unpickled, (type(self), self.args), self.__dict__


class APIError(MillraceError):
    """Failed request.

    Attributes:
        message: what went wrong, without details.
    """

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(text or message)
        self.message = message


class APIConnectionError(APIError):
    """No answer: nobody listens there, or the connection broke.

    Attributes:
        refused: True if the request can't have reached the api.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class APITimeoutError(APIConnectionError):
    """No answer in time."""


class APIStatusError(APIError):
    """Answer of the api that is an error.

    Attributes:
        status: HTTP status.
        code: of the error, such as `unknown_model`; "" where the answer has none.
        param: field that is wrong, such as `items.3.input`; "": none in particular.
        request_id: of the request, which the api's log has too.
        retryable: True if the same request may succeed later.
        retry_after_s: seconds to wait until then; None: unknown.
        problem: body of the answer.
    """

    _statuses: ClassVar[dict[int, type["APIStatusError"]]] = {}

    def __init_subclass__(cls, status: int) -> None:
        APIStatusError._statuses[status] = cls

    def __init__(
        self, status: int, body: bytes, headers: Mapping[str, str], place: Place | None = None
    ) -> None:
        problem = _problem(status, body)
        error = problem.get("error")  # of the routes of other APIs
        said = error if isinstance(error, dict) else problem
        faults = _faults(problem)
        if place:
            _put_places(faults, place)
        detail = _leads_to(headers) or str(said.get("message") or said.get("detail") or error or "")
        super().__init__(detail, _text(problem, detail, faults))
        self.status, self.problem = status, problem
        self.code = str(said.get("code") or said.get("type") or "")
        self.param = _place(faults[0]) if faults else str(said.get("param") or "")
        self.request_id = str(problem.get("request_id") or headers.get("X-Request-ID") or "")
        self.retryable = _retryable(status, problem, headers)
        self.retry_after_s = _retry_after_s(headers)

    @staticmethod
    def of(
        status: int, body: bytes, headers: Mapping[str, str], place: Place | None = None
    ) -> "APIStatusError":
        """Returns the error of an answer, by its status. place: of a line of the request in the
        file that it came from."""
        kind = APIStatusError._statuses.get(min(status, 500), APIStatusError)
        return kind(status, body, headers, place)


class BadRequestError(APIStatusError, status=400):
    """Request that can't be read."""


class AuthenticationError(APIStatusError, status=401):
    """No API key, or one that isn't valid."""


class PermissionDeniedError(APIStatusError, status=403):
    """API key that may not do this."""


class NotFoundError(APIStatusError, status=404):
    """Nothing has that id or name."""


class ConflictError(APIStatusError, status=409):
    """State that doesn't allow it."""


class UnprocessableEntityError(APIStatusError, status=422):
    """Request that is wrong in content; nothing was stored."""


class RateLimitError(APIStatusError, status=429):
    """Limit that is reached, or a queue that is too long."""


class InternalServerError(APIStatusError, status=500):
    """Api, or a service behind it, that can't answer."""


class InputError(MillraceError, ValueError):
    """Inputs that can't be sent; says which and why."""


class ItemError(MillraceError):
    """Item of a job that has no output.

    Attributes:
        result: its result, with `outcome` and `error`.
    """

    def __init__(self, result: Mapping[str, Any]) -> None:
        error = result.get("error") or {}
        why = ": ".join(filter(None, (error.get("code", ""), error.get("message", ""))))
        text = f"item {result['seq']} {result['outcome']}"
        super().__init__(f"{text}: {why}" if why else text)
        self.result = result


class JobFailed(MillraceError):
    """Job whose items could not be read, or aren't valid.

    Attributes:
        job: job object, with `error`.
    """

    def __init__(self, job: Mapping[str, Any]) -> None:
        error = job.get("error") or {}
        said = f"{job['id']} failed: {error.get('message') or error}"
        super().__init__(_with_faults(said, _faults(error)))
        self.job = job


class JobChanged(MillraceError):
    """Job that was retried while its results were read: those of two runs are never mixed."""


class StreamError(MillraceError):
    """Stream that ended in an error.

    Attributes:
        code: of the error.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message") or "the stream broke off"))
        self.code = str(error.get("code") or "")


class VerificationError(MillraceError):
    """Webhook whose signature or time is wrong."""


class WaitTimeout(MillraceError, TimeoutError):
    """Job that has not ended in time; it goes on.

    Attributes:
        job_id: id of the job.
    """

    def __init__(self, job_id: str, timeout_s: float) -> None:
        super().__init__(f"{job_id} has not ended within {timeout_s:g} s; it goes on")
        self.job_id = job_id


def _unpickled(kind: type[MillraceError], args: tuple[Any, ...]) -> MillraceError:
    error = kind.__new__(kind)
    error.args = args
    return error


def _problem(status: int, body: bytes) -> dict[str, Any]:
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        problem = None
    if isinstance(problem, dict):
        return problem
    return {"status": status, "detail": body.decode("utf-8", "replace")[:_MAX_TEXT]}


def _text(problem: Mapping[str, Any], detail: str, faults: list[dict[str, Any]]) -> str:
    """Returns title and detail, and a line for each fault that the detail doesn't name."""
    return _with_faults(f"{problem.get('title', 'refused')}: {detail}", faults)


def _with_faults(said: str, faults: list[dict[str, Any]]) -> str:
    lines = [said]
    for fault in faults[:_MAX_FAULTS]:
        message = str(fault.get("message") or "")
        if message not in said:
            lines.append("  " + ": ".join(filter(None, (_where(fault), message))))
    return "\n".join(lines)


def _faults(problem: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the faults of an answer, of whatever form: a proxy has its own."""
    found = problem.get("errors")
    listed = found if isinstance(found, list) else []
    return [one if isinstance(one, dict) else {"message": str(one)} for one in listed]


def _put_places(faults: list[dict[str, Any]], place: Place) -> None:
    """Puts places in files where the api names lines of the request."""
    for fault in faults:
        if isinstance(line := fault.pop("line", None), int):
            fault |= place(line)
        if isinstance(first := fault.get("first"), dict) and isinstance(first.get("line"), int):
            fault["first"] = place(first["line"])
            fault["message"] = f"custom_id is already that of {_where(fault['first'])}"


def _where(fault: Mapping[str, Any]) -> str:
    """Returns the place of a fault: file, line or row, and custom_id, or else its field."""
    places = [str(fault.get("file") or "")]
    places += [f"{kind} {fault[kind]}" for kind in ("line", "row", "element") if kind in fault]
    if not any(places):
        return _place(fault)
    custom_id = fault.get("custom_id")
    return ", ".join(filter(None, places)) + (f" (custom_id {custom_id!r})" if custom_id else "")


def _place(fault: Mapping[str, Any]) -> str:
    """Returns the field that is wrong, such as `items.3.input`."""
    place = fault.get("loc") or ""
    return ".".join(map(str, place)) if isinstance(place, list) else str(place)


def _leads_to(headers: Mapping[str, str]) -> str:
    """Returns where a redirect leads, which isn't followed."""
    place = headers.get("Location")
    return f"it leads to {place}; give the client that address" if place else ""


def _retryable(status: int, problem: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
    said = headers.get("X-Should-Retry") or str(problem.get("retryable", "")).lower()
    return said == "true" if said else status in _TEMPORARY


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    for name, unit_s in (("Retry-After-Ms", 0.001), ("Retry-After", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit_s)
        except (KeyError, ValueError):  # absent, or a date, which the api doesn't send
            continue
    return None
