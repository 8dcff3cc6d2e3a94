"""Errors: one tree of types of RFC 9457; each has a status, a code, and whether to retry.

MillraceError                     500  internal
├── Malformed                     400  malformed
│   └── IdempotencyKeyMissing     400  idempotency_key_missing
├── Unauthenticated               401  unauthenticated
├── Forbidden                     403  forbidden
├── NotFound                      404  not_found
│   └── UnknownModel              404  unknown_model
├── SlowReader                    408  slow_reader
├── Conflict                      409  conflict
│   ├── CallCancelled             409  cancelled
│   ├── IdempotencyKeyInFlight    409  idempotency_key_in_flight
│   └── StreamMoved               409  stream_moved
├── JobDeleted                    410  job_deleted
├── Pruned                        410  pruned
├── TooLarge                      413  too_large
├── UrlTooLong                    414  url_too_long
├── UnsupportedMedia              415  unsupported_media_type
├── RangeNotSatisfiable           416  range_not_satisfiable
├── Untransferable                422  untransferable, or more exactly
├── Invalid                       422  invalid
│   ├── IdempotencyKeyReused      422  idempotency_key_reused
│   └── TooManyItems              422  invalid
├── TooLate                       429  predicted_wait
├── QuotaExceeded                 429  quota_exceeded
│   └── StorageFull               429  quota_exceeded
├── SpendCap                      429  spend_cap
├── HeadTooLarge                  431  head_too_large
├── Unreadable                    500  payload_unreadable
│   ├── PayloadLost               500  payload_lost
│   └── PayloadCorrupt            500  payload_corrupt
├── Unavailable                   503  unavailable
│   ├── ApiStopping               503  api_stopping
│   ├── BlobStoreUnavailable      503  blobs_away
│   │   └── BlobStoreFull         507  insufficient_storage
│   ├── NoWorker                  503  no_worker
│   ├── NotConfigured             503  not_configured
│   ├── Overloaded                503  overloaded
│   ├── StreamBroken              503  stream_broken
│   └── WorkerLost                503  worker_lost
├── DeadlinePassed                504  deadline_passed
└── InsufficientStorage           507  insufficient_storage
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from errno import EDQUOT, ENOSPC
from typing import Any, ClassVar

import orjson

from jobs import clock
from jobs.limits import Bound


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a request."""

    loc: tuple[str | int, ...]  #: path into the body or the query
    code: str
    message: str
    line: int | None = None  #: of an NDJSON body, from 1
    custom_id: str | None = None  #: of the item
    place: Mapping[str, Any] | None = None  #: in a file, in place of the line: file; line or row
    first: Mapping[str, Any] | None = None  #: place of the first item with the same custom_id

    def as_json(self) -> dict[str, Any]:
        """Returns the fault as an entry of a problem's `errors`."""
        more = dict(self.place or {"line": self.line}, custom_id=self.custom_id, first=self.first)
        more |= {"code": self.code, "message": without_surrogates(self.message)}
        loc = [part if isinstance(part, int) else without_surrogates(part) for part in self.loc]
        return {"loc": loc} | {k: v for k, v in more.items() if v is not None}


def without_surrogates(words: str) -> str:
    """Replaces lone surrogates in a client's own words: they can't be stored or sent back."""
    return words.encode("utf-8", "replace").decode()


class MillraceError(Exception):
    """Root of the tree: an error that is sent to clients."""

    status: ClassVar[int] = 500  #: HTTP status
    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False
    challenge: ClassVar[str] = ""  #: value of WWW-Authenticate
    more: Mapping[str, Any] = {}  #: extension members of the problem (RFC 9457)
    model: str = ""  #: version (name@version) that had admitted the call; "": none

    def __init__(
        self, detail: str, *, faults: Sequence[Fault] = (), retry_after_s: float | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.faults = tuple(faults)
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the fields, since constructors differ."""
        return _rebuilt, (type(self), self.args, vars(self))


def _rebuilt(
    kind: type[MillraceError], args: tuple[Any, ...], fields: dict[str, Any]
) -> MillraceError:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(fields)
    return error


class Malformed(MillraceError):
    """The request can't be parsed."""

    status, code, title = 400, "malformed", "The request can't be read"


class IdempotencyKeyMissing(Malformed):
    """The server requires an Idempotency-Key."""

    code, title = "idempotency_key_missing", "Idempotency-Key is missing"


class Unauthenticated(MillraceError):
    """Missing or invalid credential."""

    status, code, title = 401, "unauthenticated", "No valid credential"
    challenge = "Bearer"


class Forbidden(MillraceError):
    """The credential doesn't allow this."""

    status, code, title = 403, "forbidden", "The credential doesn't allow this"
    challenge = 'Bearer error="insufficient_scope"'


class NotFound(MillraceError):
    """No such resource, or one that the caller may not see."""

    status, code, title = 404, "not_found", "Not found"


class UnknownModel(NotFound):
    """No such model is served."""

    code, title = "unknown_model", "Unknown model"


class SlowReader(MillraceError):
    """The client doesn't read its stream: it is cut."""

    status, code, title, retryable = 408, "slow_reader", "The stream was not read", True


class Conflict(MillraceError):
    """The state of the resource forbids this."""

    status, code, title = 409, "conflict", "Not possible in this state"


class CallCancelled(Conflict):
    """Its tenant cancelled the call."""

    code, title = "cancelled", "The call was cancelled"


class StreamMoved(Conflict):
    """A newer connection reads the stream: the call goes on there."""

    code, title = "stream_moved", "Another connection reads the stream"


class IdempotencyKeyInFlight(Conflict):
    """The first request under this key has no response yet."""

    code, retryable = "idempotency_key_in_flight", True
    title = "A request is outstanding for this Idempotency-Key"

    def __init__(self) -> None:
        detail = "the first request under this key has no answer yet; ask again for it"
        super().__init__(detail, retry_after_s=0.5 + clock.jitter(0.5))


class Pruned(MillraceError):
    """Retention has removed the resource."""

    status, code, title = 410, "pruned", "Removed at the end of its retention"


class TooLarge(MillraceError):
    """The body is too large."""

    status, code, title = 413, "too_large", "The body is too large"


class UrlTooLong(MillraceError):
    """The URL is too long."""

    status, code, title = 414, "url_too_long", "The URL is too long"


class UnsupportedMedia(MillraceError):
    """The content type is not supported."""

    status, code, title = 415, "unsupported_media_type", "Unsupported content type"


class RangeNotSatisfiable(MillraceError):
    """A range has none of the bytes that are there, of which `more` tells the number."""

    status, code, title = 416, "range_not_satisfiable", "The range isn't there"


class Invalid(MillraceError):
    """The request is well-formed but not valid; `faults` says why."""

    status, code, title = 422, "invalid", "The request is not valid"


class Untransferable(MillraceError):
    """A source or target of a job can't be used, however often it is tried; code: the reason."""

    status, code, title = 422, "untransferable", "Can't be read, or written to"

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.how = code


class TooManyItems(Invalid):
    """A job has more items than a limit allows."""

    def __init__(self, bound: Bound) -> None:
        message = f"{bound.whose} may send {bound.most:g} items at most ({bound.name})"
        fault = Fault(("items",), "too_many_items", message)
        super().__init__(f"{message}; nothing was stored", faults=[fault])
        self.more = {"limit": bound.described()}


class IdempotencyKeyReused(Invalid):
    """The key belongs to another request."""

    code, title = "idempotency_key_reused", "Idempotency-Key is already used"

    def __init__(self) -> None:
        super().__init__("the key belongs to a request that was not the same; send a new key")


class TooLate(MillraceError):
    """The predicted wait is longer than allowed."""

    status, code, retryable = 429, "predicted_wait", True
    title = "The predicted wait is longer than allowed"


class QuotaExceeded(MillraceError):
    """A limit of the tenant or of its key is used up. left: rest of it."""

    status, code, retryable = 429, "quota_exceeded", True
    title = "A limit is used up"

    def __init__(
        self, detail: str, *, bound: Bound, left: int = 0, retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(detail, retry_after_s=retry_after_s)
        self.bound, self.left = bound, left
        self.more = {"limit": bound.described()}
        self.headers = headers or {}


class StorageFull(QuotaExceeded):
    """Stored bytes are used up: waiting doesn't help."""

    retryable = False


class SpendCap(MillraceError):
    """The hard cap of this month is reached: nothing new is accepted."""

    status, code, title = 429, "spend_cap", "The spend cap of this month is reached"

    def __init__(self) -> None:
        now = clock.now()
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        next_month = (start + timedelta(days=32)).replace(day=1)
        detail = (
            f"this tenant has spent its hard cap; the next month begins at {next_month:%Y-%m-%d} "
            "00:00 UTC, unless an admin raises the cap before"
        )
        super().__init__(detail, retry_after_s=(next_month - now).total_seconds())


class HeadTooLarge(MillraceError):
    """The headers are too large."""

    status, code, title = 431, "head_too_large", "The headers are too large"


class Unreadable(MillraceError):
    """The blob of a payload is missing, or not what was stored."""

    code, title = "payload_unreadable", "A payload can't be read"

    def as_result(self) -> str:
        """Returns the error of an item that failed by this, as JSON."""
        return orjson.dumps({"code": self.code, "message": self.detail}).decode()


class PayloadLost(Unreadable):
    """The blob of a payload is missing."""

    code, title = "payload_lost", "A payload is missing"


class PayloadCorrupt(Unreadable):
    """The blob of a payload is not what was stored."""

    code, title = "payload_corrupt", "A payload is not what was stored"


class Unavailable(MillraceError):
    """The service is unavailable for now."""

    status, code, title, retryable = 503, "unavailable", "Temporarily unavailable", True


class ApiStopping(Unavailable):
    """The api process stops: the call goes on, and its stream can be read at another one."""

    code, title = "api_stopping", "This api stops"


class BlobStoreUnavailable(Unavailable):
    """The blob store can't be reached or refuses."""

    code, title = "blobs_away", "The blob store can't be reached"


class BlobStoreFull(BlobStoreUnavailable):
    """The disk of the blob store is full."""

    status, code, title = 507, "insufficient_storage", "A disk is full"


class NoWorker(Unavailable):
    """No worker is ready for this model."""

    code, title = "no_worker", "No worker is ready for this model"


class NotConfigured(Unavailable):
    """A setting that this needs is not set."""

    code, title, retryable = "not_configured", "Not configured here", False


class Overloaded(Unavailable):
    """The queue of calls is full."""

    code, title = "overloaded", "The queue is full"


class StreamBroken(Unavailable):
    """A part of a stream was lost, or its worker began again."""

    code, title = "stream_broken", "The stream has a gap"


class WorkerLost(Unavailable):
    """Two workers that had the call died."""

    code, title = "worker_lost", "The workers that had the call died"


class DeadlinePassed(MillraceError):
    """The deadline passed before an answer."""

    status, code, title, retryable = 504, "deadline_passed", "The deadline passed", True


class InsufficientStorage(MillraceError):
    """A disk is full: that of temporary files, or the database's."""

    status, code, title, retryable = 507, "insufficient_storage", "A disk is full", True


def is_disk_full(error: BaseException) -> bool:
    """Returns True where an error says that a disk is full, or one's share of it: of this process,
    of the blob store, or of PostgreSQL (sqlstate 53100)."""
    cause = getattr(error, "orig", error)
    if isinstance(cause, OSError):
        return cause.errno in (ENOSPC, EDQUOT)
    kinds = BlobStoreFull, InsufficientStorage
    return isinstance(cause, kinds) or getattr(cause, "sqlstate", None) == "53100"
