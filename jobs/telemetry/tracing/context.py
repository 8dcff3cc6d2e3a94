"""W3C trace context: read, begun, passed on (https://www.w3.org/TR/trace-context/)."""

import re
from contextvars import ContextVar
from dataclasses import dataclass

from jobs import clock

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_STATE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,510}[\x21-\x7e])?")
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Which trace something belongs to, and the span that it is a part of. state: `tracestate`,
    which others wrote and we pass on."""

    trace_id: int
    span_id: int
    sampled: bool
    state: str = ""

    @property
    def header(self) -> str:
        """As `traceparent` has it."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.sampled:02x}"

    @property
    def headers(self) -> dict[str, str]:
        """What a request that is a part of this span is sent with."""
        return {"traceparent": self.header} | ({"tracestate": self.state} if self.state else {})

    def pack(self) -> str:
        """Both headers as one text, for a row or a message."""
        return f"{self.header} {self.state}".rstrip()

    def child(self) -> "TraceContext":
        """The context of a new span in this trace."""
        return TraceContext(self.trace_id, _new_id(64), self.sampled, self.state)


HERE: ContextVar[TraceContext | None] = ContextVar("trace", default=None)
"""What runs here is a part of this span."""


def parse(header: str | None, state: str | None = None) -> TraceContext | None:
    """What a `traceparent` says, with a `tracestate` that is fit to be passed on; None: nothing, or
    nothing that can be read."""
    found = _PARENT.fullmatch(header.strip()) if header else None
    if not found:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    if not trace_id or not span_id:
        return None
    kept = state.strip() if state else ""
    return TraceContext(
        trace_id, span_id, bool(flags & _SAMPLED), kept if _STATE.fullmatch(kept) else ""
    )


def unpack(packed: str | None) -> TraceContext | None:
    """From what `pack` gave."""
    header, _, state = (packed or "").partition(" ")
    return parse(header, state)


def begin(share: float) -> TraceContext:
    """A trace of our own; share: of those that are sampled, 0 to 1."""
    sampled = clock.chance(share)
    return TraceContext(_new_id(128), _new_id(64), sampled)


def _new_id(bits: int) -> int:
    return clock.random_bits(bits) or 1
