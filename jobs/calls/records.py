"""Records of ended calls, for `millrace why`: in Redis, for an hour.

They are grouped by the minute in which a call was made, which its id has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from jobs import ids

RETENTION_S = 3600
_MINUTE_MS = 60_000


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


def record_key(id: str) -> str | None:
    """Returns the key of the hash with a call's record; None where the id is no call's."""
    made = ids.parse("call", id)
    return f"millrace:ended:{(made.int >> 80) // _MINUTE_MS}" if made else None
