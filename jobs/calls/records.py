"""What is kept of calls that ended, for `millrace why`: in Redis, for an hour, by the minute in
which a call was made, which its id tells."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from jobs import ids

RETENTION_S = 3600
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call. outcome: succeeded, cancelled (its client left) or the error's code; ended_at:
    Unix time, s; timing: as it was answered, with total_ms; lane: of the last way that was tried;
    needed_ms, allowed_ms: of one that was refused for its time, what an answer would have taken, as
    predicted, and what was left for it."""

    id: str
    tenant: str
    model: str
    version: str
    job_class: str
    outcome: str
    ended_at: float
    target_ms: int
    timeout_ms: int
    size: int
    lane: str
    timing: Mapping[str, Any] = field(default_factory=dict)
    needed_ms: float | None = None
    allowed_ms: float | None = None

    @property
    def key(self) -> str:
        return f"{self.model}@{self.version}"

    @property
    def total_ms(self) -> float:
        return float(self.timing.get("total_ms", 0.0))

    def pack(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def unpack(cls, packed: bytes) -> "CallRecord":
        """Raises ValueError or TypeError where it is of another release."""
        return cls(**orjson.loads(packed))


def record_key(id: str) -> str | None:
    """The key of the hash in which a call's record is, by its id; None: that is no call's."""
    made = ids.parse("call", id)
    return f"millrace:ended:{(made.int >> 80) // _MINUTE_MS}" if made else None
