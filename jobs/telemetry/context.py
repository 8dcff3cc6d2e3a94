"""W3C trace context: read, begun, passed on (https://www.w3.org/TR/trace-context/)."""

import re
from dataclasses import dataclass

from jobs import clock

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Which trace something belongs to, and the span that it is a part of."""

    trace_id: int
    span_id: int
    sampled: bool

    @property
    def header(self) -> str:
        """As `traceparent` has it."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.sampled:02x}"

    def child(self) -> "TraceContext":
        """The context of a new span in this trace."""
        return TraceContext(self.trace_id, clock.random_bits(64) or 1, self.sampled)


def parse(header: str | None) -> TraceContext | None:
    """What a `traceparent` says; None: nothing, or nothing that can be read."""
    found = _PARENT.fullmatch(header.strip()) if header else None
    if not found:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    if not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(flags & _SAMPLED))


def begin(share: float) -> TraceContext:
    """A trace of our own; share: of those that are sampled, 0 to 1."""
    sampled = clock.chance(share)
    return TraceContext(clock.random_bits(128) or 1, clock.random_bits(64) or 1, sampled)
