"""Profile of a model's launches, which its workers announce and admission predicts by."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import orjson

from jobs.calls.lanes import Terms


@dataclass(frozen=True, slots=True)
class Times:
    """Launches of one bucket."""

    full_rows: int  #: most rows of a launch
    full_ms: float  #: time of a launch of so many rows
    one_ms: float  #: time of a launch of a single row
    step_ms: float | None = None  #: that each further row adds; None: evenly, up to full_ms
    alone_ms: float | None = None  #: of a single row where nothing else runs; None: one_ms


@dataclass(frozen=True, slots=True)
class Profile:
    """Launch times as the latest worker has measured them."""

    load_ms: float = 0.0  #: time until a worker that loads the model is ready; 0: not known
    buckets: Mapping[int, Times] = field(default_factory=dict)
    slots: int = 0  #: concurrent launches of one worker; 0: as declared

    def terms(self, bucket: int, slots: int, allowed_ms: float) -> Terms:
        """Returns the terms of a call of this bucket; without times, none is rejected."""
        times = self.buckets.get(bucket)
        if times is None:
            return Terms(slots=slots)
        step_ms = times.step_ms
        if step_ms is None:
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
        """Returns the profile as JSON."""
        packed = asdict(self)
        for times in packed["buckets"].values():
            for name in ("step_ms", "alone_ms"):
                if times[name] is None:
                    del times[name]  # an api of an earlier release doesn't know it
        return orjson.dumps(packed, option=orjson.OPT_NON_STR_KEYS)

    @classmethod
    def unpack(cls, packed: bytes) -> "Profile":
        """Reads the bytes of `pack`; empty: nothing is known."""
        if not packed:
            return cls()
        fields = orjson.loads(packed)
        buckets = {int(bucket): Times(**times) for bucket, times in fields["buckets"].items()}
        return cls(fields["load_ms"], buckets, fields.get("slots", 0))
