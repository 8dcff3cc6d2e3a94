"""What can go wrong, and what to say of it.

    MillraceError                500  internal
    ├── Malformed                400  malformed
    │   └── KeyMissing           400  idempotency_key_missing
    ├── Unauthenticated          401  unauthenticated
    ├── Forbidden                403  forbidden
    ├── NotFound                 404  not_found
    │   └── UnknownModel         404  unknown_model
    ├── Conflict                 409  conflict
    │   └── KeyInFlight          409  idempotency_key_in_flight
    ├── Pruned                   410  pruned
    ├── TooLarge                 413  too_large
    ├── UrlTooLong               414  url_too_long
    ├── UnsupportedMedia         415  unsupported_media_type
    ├── Untransferable           422  untransferable, or more exactly
    ├── Invalid                  422  invalid
    │   ├── KeyReused            422  idempotency_key_reused
    │   └── TooManyItems         422  invalid
    ├── TooLate                  429  predicted_wait
    ├── QuotaExceeded            429  quota_exceeded
    │   └── StorageFull          429  quota_exceeded
    ├── SpendCap                 429  spend_cap
    ├── HeadTooLarge             431  head_too_large
    ├── Unreadable               500  payload_unreadable
    │   ├── PayloadLost          500  payload_lost
    │   └── PayloadCorrupt       500  payload_corrupt
    ├── Unavailable              503  unavailable
    │   ├── BlobsAway            503  blobs_away
    │   ├── NoWorker             503  no_worker
    │   ├── NotConfigured        503  not_configured
    │   ├── Overloaded           503  overloaded
    │   └── WorkerLost           503  worker_lost
    └── DeadlinePassed           504  deadline_passed

Each class is one `type` of RFC 9457; the api's one handler renders them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import orjson

from jobs import clock
from jobs.limits import Bound


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
    challenge: ClassVar[str] = ""
    """What WWW-Authenticate says."""

    more: Mapping[str, Any] = {}  # members of the problem that others haven't

    def __init__(
        self, detail: str, *, faults: Sequence[Fault] = (), retry_after_s: float | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.faults = tuple(faults)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is, whatever its constructor takes."""
        return _rebuilt, (type(self), self.args, vars(self))


def _rebuilt(
    kind: type[MillraceError], args: tuple[Any, ...], fields: dict[str, Any]
) -> MillraceError:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(fields)
    return error


class Malformed(MillraceError):
    status, code, title = 400, "malformed", "The request can't be read"


class IdempotencyKeyMissing(Malformed):
    code, title = "idempotency_key_missing", "Idempotency-Key is missing"


class Unauthenticated(MillraceError):
    status, code, title = 401, "unauthenticated", "No valid credential"
    challenge = "Bearer"


class Forbidden(MillraceError):
    status, code, title = 403, "forbidden", "The credential doesn't allow this"
    challenge = 'Bearer error="insufficient_scope"'


class NotFound(MillraceError):
    status, code, title = 404, "not_found", "Not found"


class UnknownModel(NotFound):
    code, title = "unknown_model", "Unknown model"


class Conflict(MillraceError):
    status, code, title = 409, "conflict", "Not possible in this state"


class IdempotencyKeyInFlight(Conflict):
    code, retryable = "idempotency_key_in_flight", True
    title = "A request is outstanding for this Idempotency-Key"

    def __init__(self) -> None:
        detail = "the first request under this key has no answer yet; ask again for it"
        super().__init__(detail, retry_after_s=0.5 + clock.jitter(0.5))


class Pruned(MillraceError):
    status, code, title = 410, "pruned", "Removed at the end of its retention"


class TooLarge(MillraceError):
    status, code, title = 413, "too_large", "The body is too large"


class UrlTooLong(MillraceError):
    status, code, title = 414, "url_too_long", "The URL is too long"


class UnsupportedMedia(MillraceError):
    status, code, title = 415, "unsupported_media_type", "Unsupported content type"


class Invalid(MillraceError):
    status, code, title = 422, "invalid", "The request is not valid"


class Untransferable(MillraceError):
    """What a job is read from, or written to, will not do, however often it is tried. code: which
    way, in its job's words."""

    status, code, title = 422, "untransferable", "Can't be read, or written to"

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.how = code


class TooManyItems(Invalid):
    """More than a limit lets one job have."""

    def __init__(self, bound: Bound) -> None:
        message = f"{bound.whose} may send {bound.most:g} items at most ({bound.name})"
        fault = Fault(("items",), "too_many_items", message)
        super().__init__(f"{message}; nothing was stored", faults=[fault])
        self.more = {"limit": bound.described()}


class IdempotencyKeyReused(Invalid):
    code, title = "idempotency_key_reused", "Idempotency-Key is already used"

    def __init__(self) -> None:
        super().__init__("the key belongs to a request that was not the same; send a new key")


class TooLate(MillraceError):
    status, code, retryable = 429, "predicted_wait", True
    title = "The predicted wait is longer than allowed"


class QuotaExceeded(MillraceError):
    """A limit of the tenant, or of its key, is used up. left: of what it limits."""

    status, code, retryable = 429, "quota_exceeded", True
    title = "A limit is used up"

    def __init__(
        self,
        detail: str,
        *,
        bound: Bound,
        left: int = 0,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.bound, self.left = bound, left
        self.more = {"limit": bound.described()}
        self.headers = headers or {}


class StorageFull(QuotaExceeded):
    """To wait doesn't help."""

    retryable = False


class SpendCap(MillraceError):
    """This month's hard cap is reached: nothing new is taken in."""

    status, code, title = 429, "spend_cap", "The spend cap of this month is reached"

    def __init__(self) -> None:
        now = clock.now()
        next_month = (now.replace(day=1) + timedelta(days=32)).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        detail = (
            f"this tenant has spent its hard cap; the next month begins at {next_month:%Y-%m-%d} "
            "00:00 UTC, unless an admin raises the cap before"
        )
        super().__init__(detail, retry_after_s=(next_month - now).total_seconds())


class HeadTooLarge(MillraceError):
    status, code, title = 431, "head_too_large", "The headers are too large"


class Unreadable(MillraceError):
    """A payload whose blob is not there, or not what was stored."""

    code, title = "payload_unreadable", "A payload can't be read"

    def as_result(self) -> str:
        """The error of an item that failed by this, as JSON."""
        return orjson.dumps({"code": self.code, "message": self.detail}).decode()


class PayloadLost(Unreadable):
    code, title = "payload_lost", "A payload is gone"


class PayloadCorrupt(Unreadable):
    code, title = "payload_corrupt", "A payload is not what was stored"


class Unavailable(MillraceError):
    status, code, title, retryable = 503, "unavailable", "Temporarily unavailable", True


class BlobStoreUnavailable(Unavailable):
    code, title = "blobs_away", "The blob store can't be reached"


class NoWorker(Unavailable):
    code, title = "no_worker", "No worker is ready for this model"


class NotConfigured(Unavailable):
    code, title, retryable = "not_configured", "Not configured here", False


class Overloaded(Unavailable):
    code, title = "overloaded", "The queue is full"


class WorkerLost(Unavailable):
    code, title = "worker_lost", "The workers died that had the call in hand"


class DeadlinePassed(MillraceError):
    status, code, title, retryable = 504, "deadline_passed", "The deadline passed", True
