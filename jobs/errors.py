"""What can go wrong, and what to say of it.

    MillraceError                500  internal
    ├── Malformed                400  malformed
    ├── NotFound                 404  not_found
    │   └── UnknownModel         404  unknown_model
    ├── Conflict                 409  conflict
    ├── TooLarge                 413  too_large
    ├── UnsupportedMedia         415  unsupported_media_type
    ├── Invalid                  422  invalid
    ├── Unavailable              503  unavailable
    │   ├── NoWorker             503  no_worker
    │   ├── NotConfigured        503  not_configured
    │   └── Overloaded           503  overloaded
    └── DeadlinePassed           504  deadline_passed

Each class is one `type` of RFC 9457; the api's one handler renders them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a request.

    loc: where, as a path into the body or the query; line: 1-based, for NDJSON.
    """

    loc: tuple[str | int, ...]
    code: str
    message: str
    line: int | None = None

    def as_json(self) -> dict[str, Any]:
        line = {} if self.line is None else {"line": self.line}
        loc = [_text(part) if isinstance(part, str) else part for part in self.loc]
        return {"loc": loc, **line, "code": self.code, "message": self.message}


def _text(name: str) -> str:
    """A client's own name for something: a lone surrogate in it can't be sent back."""
    return name.encode("utf-8", "replace").decode()


class MillraceError(Exception):
    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False

    def __init__(
        self, detail: str, *, faults: Sequence[Fault] = (), retry_after_s: float | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.faults = tuple(faults)
        self.retry_after_s = retry_after_s


class Malformed(MillraceError):
    status, code, title = 400, "malformed", "The request can't be read"


class NotFound(MillraceError):
    status, code, title = 404, "not_found", "Not found"


class UnknownModel(NotFound):
    code, title = "unknown_model", "Unknown model"


class Conflict(MillraceError):
    status, code, title = 409, "conflict", "Not possible in this state"


class TooLarge(MillraceError):
    status, code, title = 413, "too_large", "The body is too large"


class UnsupportedMedia(MillraceError):
    status, code, title = 415, "unsupported_media_type", "Unsupported content type"


class Invalid(MillraceError):
    status, code, title = 422, "invalid", "The request is not valid"


class Unavailable(MillraceError):
    status, code, title, retryable = 503, "unavailable", "Temporarily unavailable", True


class NoWorker(Unavailable):
    code, title = "no_worker", "No worker is ready for this model"


class NotConfigured(Unavailable):
    code, title, retryable = "not_configured", "Not configured here", False


class Overloaded(Unavailable):
    code, title = "overloaded", "The queue is full"


class DeadlinePassed(MillraceError):
    status, code, title, retryable = 504, "deadline_passed", "The deadline passed", True
