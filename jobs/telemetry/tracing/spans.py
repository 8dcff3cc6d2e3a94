"""Spans of traces that are sampled, made after the fact from times that are known anyway.

Where no receiver is configured nothing is made, and OpenTelemetry isn't loaded. What isn't sampled
costs a look at a header, or a coin.
"""

from collections.abc import Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol

from jobs import clock
from jobs.telemetry.tracing.context import HERE, TraceContext, begin, parse, unpack

Kind = Literal["internal", "server", "client", "producer", "consumer"]
MOST_LINKS = 128
"""Of one span, as OpenTelemetry's own default."""


@dataclass(frozen=True, slots=True)
class Link:
    """To a span of this or another trace."""

    context: TraceContext
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Span:
    """parent: a span's id, 0 for none; *_s: on the process's clock; error: a code, where it failed.
    As a context manager it lasts until its block ends, and what runs in it is a part of it."""

    name: str
    context: TraceContext | None
    parent: int = 0
    kind: Kind = "internal"
    since_s: float = 0.0
    until_s: float = 0.0
    attributes: dict[str, Any] = field(default_factory=dict)
    links: Sequence[Link] = ()
    error: str = ""
    _token: Token[TraceContext | None] | None = None

    def __enter__(self) -> "Span":
        if self.context:
            self._token, self.since_s = HERE.set(self.context), clock.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token:
            HERE.reset(self._token)
            self.until_s = clock.monotonic()
            if error is not None:
                self.error = str(getattr(error, "code", type(error).__name__))
            record(self)

    def note(self, **attributes: Any) -> None:
        """Adds attributes; `__` in a name stands for a dot."""
        if self.context:
            self.attributes |= {name.replace("__", "."): v for name, v in attributes.items()}

    @property
    def packed(self) -> str:
        """Its context, for a row or a message; empty: there is none."""
        return self.context.pack() if self.context else ""


NOTHING = Span("", None)
"""What isn't traced."""


class Receiver(Protocol):
    """Where spans go."""

    def add(self, spans: Sequence[Span]) -> None: ...

    def stop(self) -> None: ...


_receiver: Receiver | None = None
_share = 0.0


def send_to(receiver: Receiver | None, share: float = 1.0) -> None:
    """share: of requests without a traceparent, so many are traced. None: nothing is."""
    global _receiver, _share
    _receiver, _share = receiver, share


def stop() -> None:
    """Sends what there is, in a few seconds or never. Nothing is traced from now on."""
    receiver = _receiver
    send_to(None)
    if receiver:
        receiver.stop()


def is_on() -> bool:
    return _receiver is not None


def arriving(name: str, traceparent: str | None, tracestate: str | None) -> Span:
    """The span of a request: of its client's trace, or of one of our own. It has no context where
    it is not traced, and one that isn't sampled where the client says so: that is passed on."""
    if _receiver is None:
        return NOTHING
    if parent := parse(traceparent, tracestate):
        return Span(name, parent.child(), parent.span_id, "server")
    if clock.chance(_share):
        return Span(name, begin(1.0), 0, "server")
    return NOTHING


def begun(name: str, kind: Kind = "internal", **attributes: Any) -> Span:
    """A span in the one that goes on here; without a context where that isn't sampled."""
    here = HERE.get()
    if here is None or not here.sampled:
        return NOTHING
    span = Span(name, here.child(), here.span_id, kind)
    span.note(**attributes)
    return span


def part_of(packed: str | None, name: str, kind: Kind = "internal", **attributes: Any) -> Span:
    """A span whose parent came by a row or a message."""
    parent = unpack(packed) if _receiver and packed else None
    if parent is None:
        return NOTHING
    span = Span(name, parent.child(), parent.span_id, kind)
    span.note(**attributes)
    return span


def passed_on() -> str | None:
    """What is stored with a job that is submitted here; None: nothing."""
    here = HERE.get()
    return here.pack() if here else None


def record(*spans: Span) -> None:
    """Spans that have ended; those that aren't sampled are left out."""
    sampled = [span for span in spans if span.context and span.context.sampled]
    if _receiver and sampled:
        _receiver.add(sampled)
