"""A real receiver of traces: OTLP over HTTP, decoded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.support.receiver import Receiver, receiving
from tests.support.wait import eventually


@dataclass(frozen=True)
class Told:
    """A span as it came. service: who made it; links: the ids of spans, and what is said of each;
    ids in hexadecimal digits, parent "" for none."""

    service: str
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    links: dict[str, dict[str, Any]]
    failed: bool

    def holds(self, other: "Told") -> bool:
        """Whether the other is over in its time."""
        return self.start_ns <= other.start_ns <= other.end_ns <= self.end_ns


class Sink:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.receiver.port}"

    @property
    def spans(self) -> list[Told]:
        return [span for request in self.receiver.received for span in _decoded(request.body)]

    def of(self, trace: str) -> list[Told]:
        return [span for span in self.spans if span.trace == trace]

    def trace(self, trace: str, *names: str) -> dict[str, Told]:
        """The spans of a trace by name, once those are there."""
        return eventually(lambda: self._if_there(trace, names))

    def launch_with(self, span: str) -> Told:
        """The launch that links this span."""
        return eventually(
            lambda: next((s for s in self.spans if s.name == "launch" and span in s.links), None)
        )

    def _if_there(self, trace: str, names: tuple[str, ...]) -> dict[str, Told]:
        found = {span.name: span for span in self.of(trace)}
        return found if set(names) <= found.keys() else {}


@contextmanager
def receiving_traces() -> Iterator[Sink]:
    with receiving() as receiver:
        yield Sink(receiver)


def _decoded(body: bytes) -> Iterator[Told]:
    for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _attributes(of_resource.resource.attributes)["service.name"]
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield Told(
                    service,
                    span.name,
                    span.kind,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _attributes(span.attributes),
                    {link.span_id.hex(): _attributes(link.attributes) for link in span.links},
                    span.status.code == Status.STATUS_CODE_ERROR,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
        for pair in pairs
    }
