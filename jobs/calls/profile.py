"""What the workers of a model tell everybody of its launches: admission counts with it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import orjson

from jobs.calls.lanes import Terms


@dataclass(frozen=True, slots=True)
class Times:
    """Launches of one bucket: how many rows one takes at most, and how long such a launch and one
    of a single row take, in ms."""

    full_rows: int
    full_ms: float
    one_ms: float


@dataclass(frozen=True, slots=True)
class Profile:
    """By bucket, as the latest worker has measured. load_ms: until a worker that has to load the
    model is ready; 0: not known. slots: launches at a time of one worker; 0: as declared."""

    load_ms: float = 0.0
    buckets: Mapping[int, Times] = field(default_factory=dict)
    slots: int = 0

    def terms(self, bucket: int, slots: int, allowed_ms: float) -> Terms:
        """For a call of this bucket; nothing is refused while nothing is known."""
        times = self.buckets.get(bucket)
        if times is None:
            return Terms(slots=slots)
        step_ms = (times.full_ms - times.one_ms) / max(1, times.full_rows - 1)
        return Terms(
            allowed_ms=allowed_ms,
            one_ms=times.one_ms,
            step_ms=max(0.0, step_ms),
            full_rows=times.full_rows,
            full_ms=times.full_ms,
            slots=slots,
        )

    def pack(self) -> bytes:
        return orjson.dumps(asdict(self), option=orjson.OPT_NON_STR_KEYS)

    @classmethod
    def unpack(cls, packed: bytes) -> "Profile":
        """From what `pack` gave; empty: nothing is known."""
        if not packed:
            return cls()
        found = orjson.loads(packed)
        buckets = {int(bucket): Times(**times) for bucket, times in found["buckets"].items()}
        return cls(found["load_ms"], buckets, found.get("slots", 0))
