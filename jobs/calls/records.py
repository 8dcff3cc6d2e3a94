"""Records of ended calls, for `millrace why` and lists of calls: in Redis, for an hour.

They are grouped by the minute in which a call was made, which its id has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from jobs import ids
from jobs.telemetry.reports.figures import REFUSED

RETENTION_S = 3600
MINUTE_S = 60
LEFT_OUT = b"left_out"
"""Field of a minute's hash with the number of calls that no record is kept of."""
GROUPS = ("refused", "late", "failed")
"""Outcomes that stand for several: see CallFilter."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Record of one call."""

    id: str
    tenant: str
    model: str
    version: str
    job_class: str
    outcome: str  #: succeeded, cancelled (its client disconnected) or the error's code
    ended_at: float  #: Unix time, s
    target_ms: int
    timeout_ms: int
    size: int
    lane: str  #: of the last version that was tried
    timing: Mapping[str, Any] = field(default_factory=dict)  #: as in the response, with total_ms
    needed_ms: float | None = None  #: predicted time of an answer; of a call rejected for its time
    allowed_ms: float | None = None  #: time that was left for it; of such a call
    #: when it got tokens, ms since it was enqueued; of a long one some
    token_ms: Sequence[int] = field(default_factory=list)
    worker: str = ""  #: that ended it; "": none did
    units: int | None = None  #: of its input and what was generated; None: it wasn't answered

    @property
    def made_at(self) -> datetime:
        """Time at which the call was made."""
        return datetime.fromtimestamp(ids.made_at("call", self.id), UTC)

    @property
    def is_late(self) -> bool:
        """True if it was answered after its target, or not until its deadline."""
        answered_late = self.outcome == "succeeded" and 0 < self.target_ms < self.answer_ms
        return answered_late or self.outcome == "deadline_passed"

    @property
    def group(self) -> str:
        """Outcome, where it is no error, or the kind of error."""
        if self.outcome in REFUSED:
            return "refused"
        return self.outcome if self.outcome in ("succeeded", "cancelled") else "failed"

    @property
    def key(self) -> str:
        """Model version: name@version."""
        return f"{self.model}@{self.version}"

    @property
    def total_ms(self) -> float:
        """Time from the request to its end."""
        return float(self.timing.get("total_ms", 0.0))

    @property
    def generated(self) -> bool:
        """True for an answer that was generated token by token."""
        return "ttft_ms" in self.timing

    @property
    def answer_ms(self) -> float:
        """Time that its target is for: until its end, or until the first token."""
        return float(self.timing["ttft_ms"]) if self.generated else self.total_ms

    def pack(self) -> bytes:
        """Returns the record as JSON."""
        return orjson.dumps(self)

    @classmethod
    def unpack(cls, packed: bytes) -> "CallRecord":
        """Reads a record. Raises ValueError or TypeError where another release wrote it."""
        return cls(**orjson.loads(packed))


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Calls that are wanted; "" and None: any."""

    model: str = ""  #: name, or name@version
    tenant: str = ""
    #: as in a record; refused: no worker got it; late; failed: any error but a refusal
    outcome: str = ""
    slower_ms: float | None = None
    since: datetime | None = None  #: made at that time or later
    until: datetime | None = None  #: made before
    text: str = ""  #: part of the id

    def matches(self, record: CallRecord) -> bool:
        """Returns True if the call is wanted."""
        return (
            self.model in ("", record.model, record.key)
            and self.tenant in ("", record.tenant)
            and self._has_ended_so(record)
            and (self.slower_ms is None or record.total_ms > self.slower_ms)
            and (self.since is None or record.made_at >= self.since)
            and (self.until is None or record.made_at < self.until)
            and self.text in record.id
        )

    def _has_ended_so(self, record: CallRecord) -> bool:
        if self.outcome == "late":
            return record.is_late
        return self.outcome in ("", record.outcome, record.group)


def record_key(id: str) -> str | None:
    """Returns the key of the hash with a call's record; None where the id is no call's."""
    made = ids.parse("call", id)
    return minute_key((made.int >> 80) // (1000 * MINUTE_S)) if made else None


def minute_key(minute: int | str) -> str:
    """Returns the key of the hash with the calls that were made in a minute since 1970; of `*` the
    pattern of all."""
    return f"millrace:ended:{minute}"
