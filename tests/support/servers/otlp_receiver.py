"""A real receiver of traces: OTLP over HTTP, decoded."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.support.servers.receiver import Receiver
from tests.support.wait import eventually


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came; ids are in hexadecimal digits."""

    service: str  #: the process that made it
    name: str
    kind: int
    trace: str  #: id of its trace
    id: str
    parent: str  #: id of the span that it is a part of; empty: none
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    links: dict[str, dict[str, Any]]  #: attributes of each link by the id of its span
    failed: bool

    def holds(self, other: "ReceivedSpan") -> bool:
        """Returns True if the other begins and ends within it."""
        return self.start_ns <= other.start_ns <= other.end_ns <= self.end_ns


class Sink(Receiver):
    @property
    def spans(self) -> list[ReceivedSpan]:
        return [span for request in self.received for span in _decoded(request.body)]

    def of_trace(self, trace: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.trace == trace]

    def trace(self, trace: str, *names: str) -> dict[str, ReceivedSpan]:
        """The spans of a trace by name, once those are there."""
        return eventually(lambda: self._if_there(trace, names))

    def launch_with(self, span: str) -> ReceivedSpan:
        """The launch that links this span."""
        return eventually(
            lambda: next((s for s in self.spans if s.name == "launch" and span in s.links), None)
        )

    def _if_there(self, trace: str, names: tuple[str, ...]) -> dict[str, ReceivedSpan]:
        found = {span.name: span for span in self.of_trace(trace)}
        return found if set(names) <= found.keys() else {}


def _decoded(body: bytes) -> Iterator[ReceivedSpan]:
    for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _attributes(of_resource.resource.attributes)["service.name"]
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield ReceivedSpan(
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
