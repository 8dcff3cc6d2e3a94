"""W3C trace context (https://www.w3.org/TR/trace-context/)."""

import re
from contextvars import ContextVar
from dataclasses import dataclass

from jobs import clock

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_STATE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,510}[\x21-\x7e])?")
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Trace and span that something belongs to."""

    trace_id: int  #: 128 bits
    span_id: int  #: 64 bits
    sampled: bool
    state: str = ""  #: `tracestate` of the client, passed on unchanged

    @property
    def header(self) -> str:
        """Value of `traceparent`."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.sampled:02x}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request that is part of this span."""
        return {"traceparent": self.header} | ({"tracestate": self.state} if self.state else {})

    def pack(self) -> str:
        """Returns both headers as one text, for a row or a message."""
        return f"{self.header} {self.state}".rstrip()

    def child(self) -> "TraceContext":
        """Returns the context of a new span in this trace."""
        return TraceContext(self.trace_id, _new_id(64), self.sampled, self.state)


CURRENT: ContextVar[TraceContext | None] = ContextVar("trace", default=None)
"""Span that the current code runs in."""


def parse(header: str | None, state: str | None = None) -> TraceContext | None:
    """Parses `traceparent` and `tracestate`; returns None if the first is missing or invalid, and
    drops the second if it is invalid."""
    match = _PARENT.fullmatch(header.strip()) if header else None
    if not match:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    if not trace_id or not span_id:
        return None
    state = (state or "").strip()
    return TraceContext(
        trace_id, span_id, bool(flags & _SAMPLED), state if _STATE.fullmatch(state) else ""
    )


def unpack(packed: str | None) -> TraceContext | None:
    """Parses what `pack` returned."""
    header, _, state = (packed or "").partition(" ")
    return parse(header, state)


def new_trace(share: float) -> TraceContext:
    """Starts a trace; `share`: probability that it is sampled, 0 to 1."""
    sampled = clock.chance(share)
    return TraceContext(_new_id(128), _new_id(64), sampled)


def _new_id(bits: int) -> int:
    return clock.random_bits(bits) or 1
