"""Records of launches and of calls that generate, which workers append to the stream of a rollout
and a keeper reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

Lane = Literal["canary", "control", "stable", "missed"]
"""Group of calls: the canary, its control of the same size, the rest of the stable version, or the
calls of the canary that the stable version answered, since no worker was ready."""

STREAM_RECORDS = 50_000
"""Entries that the stream of a rollout is cut to."""


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One launch of one lane; where callers are sticky, one caller's part of it; of a model that
    generates, one call.

    Of the rest of the stable version, several launches are one record: `launches`, and as `failed`
    those with a call that failed; nothing else is recorded of them. Of missed calls only their
    number is.
    """

    at_s: float  #: time of its end, since 1970
    lane: Lane
    calls: int = 1
    failed: int = 0  #: calls that failed
    unit: str = ""  #: caller, where callers are sticky: a digest with the rollout's salt
    latency_ms: float = 0.0  #: slowest call, from its arrival to the end of the launch
    #: device time over what the latency model of the control predicts; 0: not known
    residual: float = 0.0
    device_ms: float = 0.0  #: device time of the launch
    price: float = 0.0  #: of all its calls, in the operator's currency; units where it has none
    empty: int = 0  #: outputs without content
    truncated: int = 0  #: outputs that ended at their longest length
    invalid: int = 0  #: outputs with a number that is none (NaN, infinite)
    ttft_ms: float = 0.0  #: slowest time to the first token, of a model that generates
    itl_ms: float = 0.0  #: longest mean time between two tokens, of a model that generates
    #: time from its arrival to its end, of a call that generates: those that overlap share delays
    lasted_ms: float = 0.0
    launches: int = 1  #: 0 for the parts of a launch after its first caller's
    #: rows, units, squares and bucket of the launch, as the latency model takes them
    size: tuple[int, float, float, int] = (0, 0.0, 0.0, 0)

    @property
    def is_lost(self) -> bool:
        """True if no call of the launch got a usable output."""
        return self.failed + self.empty + self.invalid >= self.calls > 0


_PACKED = [name for name in LaunchRecord.__slots__ if name not in ("at_s", "residual")]
_DEFAULT = {name: getattr(LaunchRecord(0.0, "canary"), name) for name in _PACKED}


def pack(records: Sequence[LaunchRecord]) -> bytes:
    """Returns the records of one launch as JSON, without their time: the stream's ids have it."""
    packed = [
        {name: value for name in _PACKED if (value := getattr(record, name)) != _DEFAULT[name]}
        | {"lane": record.lane}
        for record in records
    ]
    return orjson.dumps(packed if len(packed) > 1 else packed[0])


def unpack(packed: bytes, at_s: float) -> list[LaunchRecord]:
    """Reads the bytes of `pack`; fields of a later release are left out."""
    read: Any = orjson.loads(packed)
    return [_record(fields, at_s) for fields in (read if isinstance(read, list) else [read])]


def _record(fields: dict[str, Any], at_s: float) -> LaunchRecord:
    known = {name: fields[name] for name in _PACKED if name in fields}
    if "size" in known:
        known["size"] = tuple(known["size"])
    return LaunchRecord(at_s, **known)
