"""Spans of sampled traces, built after the fact from times that are measured anyway.

Without a receiver no span is built and OpenTelemetry isn't loaded. Traces that aren't sampled cost
the parsing of a header, or a random number.
"""

from collections.abc import Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol

from jobs import clock
from jobs.telemetry.tracing.context import CURRENT, TraceContext, new_trace, parse, unpack

Kind = Literal["internal", "server", "client", "producer", "consumer"]
MOST_LINKS = 128  # of one span, OpenTelemetry's default


@dataclass(frozen=True, slots=True)
class Link:
    """Link to a span of this or another trace."""

    context: TraceContext
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Span:
    """Span of a trace; as a context manager it covers its block and is current in it."""

    name: str
    context: TraceContext | None  #: None: not traced
    parent: int = 0  #: id of the parent span; 0: none
    kind: Kind = "internal"
    since_s: float = 0.0  #: on the process's clock
    until_s: float = 0.0  #: on the process's clock
    attributes: dict[str, Any] = field(default_factory=dict)
    links: Sequence[Link] = ()
    error: str = ""  #: error code of a failure
    _token: Token[TraceContext | None] | None = None

    def __enter__(self) -> "Span":
        if self.context:
            self._token, self.since_s = CURRENT.set(self.context), clock.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token:
            CURRENT.reset(self._token)
            self.until_s = clock.monotonic()
            if error is not None:
                self.error = str(getattr(error, "code", type(error).__name__))
            record(self)

    def set_attributes(self, **attributes: Any) -> None:
        """Sets attributes; `__` in a name becomes a dot."""
        if self.context:
            self.attributes |= {name.replace("__", "."): v for name, v in attributes.items()}

    @property
    def packed(self) -> str:
        """Context of the span for a row or a message; empty if it isn't traced."""
        return self.context.pack() if self.context else ""


NO_SPAN = Span("", None)
"""Span of everything that isn't traced."""


class Receiver(Protocol):
    """Destination of spans."""

    def add(self, spans: Sequence[Span]) -> None:
        """Takes spans that have ended; must not block."""

    def stop(self) -> None:
        """Sends what is queued, for a few seconds at most."""


_receiver: Receiver | None = None
_share = 0.0


def set_receiver(receiver: Receiver | None, share: float = 1.0) -> None:
    """Sets the receiver, or switches tracing off (None).

    share: share of requests without a traceparent that are traced, 0 to 1.
    """
    global _receiver, _share
    _receiver, _share = receiver, share


def stop() -> None:
    """Switches tracing off and stops the receiver."""
    receiver = _receiver
    set_receiver(None)
    if receiver:
        receiver.stop()


def is_enabled() -> bool:
    """Returns True if spans are built."""
    return _receiver is not None


def server_span(name: str, traceparent: str | None, tracestate: str | None) -> Span:
    """Returns the span of a request, in its client's trace or a new one.

    It has no context if it isn't traced, and an unsampled one, to be passed on, if the client
    says so.
    """
    if _receiver is None:
        return NO_SPAN
    if parent := parse(traceparent, tracestate):
        return Span(name, parent.child(), parent.span_id, "server")
    if clock.chance(_share):
        return Span(name, new_trace(1.0), 0, "server")
    return NO_SPAN


def child_span(name: str, kind: Kind = "internal", **attributes: Any) -> Span:
    """Returns a child of the current span; NO_SPAN if that isn't sampled."""
    here = CURRENT.get()
    return _child(here, name, kind, attributes) if here and here.sampled else NO_SPAN


def span_in_trace(
    packed: str | None, name: str, kind: Kind = "internal", **attributes: Any
) -> Span:
    """Returns a span whose parent's context came in a row or a message."""
    parent = unpack(packed) if _receiver and packed else None
    return _child(parent, name, kind, attributes) if parent else NO_SPAN


def _child(parent: TraceContext, name: str, kind: Kind, attributes: dict[str, Any]) -> Span:
    span = Span(name, parent.child(), parent.span_id, kind)
    span.set_attributes(**attributes)
    return span


def current_context() -> str | None:
    """Returns the packed current context, to be stored with a job; None if there is none."""
    here = CURRENT.get()
    return here.pack() if here else None


def record(*spans: Span) -> None:
    """Sends the sampled ones of these ended spans."""
    sampled = [span for span in spans if span.context and span.context.sampled]
    if _receiver and sampled:
        _receiver.add(sampled)
