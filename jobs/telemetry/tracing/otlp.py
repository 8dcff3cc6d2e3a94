"""Sends spans by OTLP over HTTP, in batches, on a thread of its own. A receiver that is away or
slow loses spans, and slows nobody: they wait in a queue with a bound."""

import logging
import os
import socket
import threading
from collections.abc import Sequence
from importlib.metadata import version
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from jobs import clock
from jobs.settings import shown
from jobs.telemetry.tracing.context import TraceContext
from jobs.telemetry.tracing.spans import Span

_log = logging.getLogger(__name__)
_PATH = "/v1/traces"
_FLUSH_S = 3.0
"""A process that ends waits so long for a receiver, less than its supervisor waits for it."""
_LOOKS = 3


class OtlpReceiver:
    """endpoint: its address; without a path, the usual one. Headers, certificates, timeouts and
    the sizes of batches are what the standard OTEL_* variables say, and so is the resource."""

    def __init__(self, endpoint: str, process: str) -> None:
        # It says of each try what `_Watched` says once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        url = endpoint.rstrip("/")
        url = url if urlsplit(url).path else url + _PATH
        exporter = _Watched(OTLPSpanExporter(url), shown(url))
        self._batches = BatchSpanProcessor(exporter)
        self._scope = InstrumentationScope("millrace", version("millrace"))
        self._resource = resource_of(process)

    def add(self, spans: Sequence[Span]) -> None:
        offset_s = _offset_s()
        for span in spans:
            self._batches.on_end(self._as_read(span, offset_s))

    def stop(self) -> None:
        flushing = threading.Thread(target=self._batches.shutdown, daemon=True)
        flushing.start()
        flushing.join(_FLUSH_S)

    def _as_read(self, span: Span, offset_s: float) -> ReadableSpan:
        assert span.context
        parent = None
        if span.parent:
            parent = SpanContext(span.context.trace_id, span.parent, is_remote=False)
        error = {"error.type": span.error} if span.error else {}
        return ReadableSpan(
            span.name,
            _as_told(span.context),
            parent,
            self._resource,
            {name: value for name, value in span.attributes.items() if value is not None} | error,
            links=[Link(_as_told(link.context), link.attributes) for link in span.links],
            kind=SpanKind[span.kind.upper()],
            status=Status(StatusCode.ERROR if span.error else StatusCode.UNSET),
            start_time=_unix_ns(span.since_s, offset_s),
            end_time=_unix_ns(span.until_s, offset_s),
            instrumentation_scope=self._scope,
        )


class _Watched(SpanExporter):
    """Says once that a receiver takes nothing, and once that it does again."""

    def __init__(self, inner: OTLPSpanExporter, address: str) -> None:
        self._inner, self._address, self._failing = inner, address, False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        found = self._inner.export(spans)
        failed = found is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            _log.warning("%s takes no spans: they are lost until it does", self._address)
        elif self._failing and not failed:
            _log.info("%s takes spans again", self._address)
        self._failing = failed
        return found

    def shutdown(self) -> None:
        self._inner.shutdown()  # type: ignore[no-untyped-call]


def resource_of(process: str) -> Resource:
    """Who sends: as the OTEL_* variables say or, where they don't, as we do."""
    ours: dict[str, str | int] = {
        "service.name": f"millrace-{process}",
        "service.namespace": "millrace",
        "service.version": version("millrace"),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    return Resource.create().merge(Resource(ours)).merge(OTELResourceDetector().detect())


def _as_told(context: TraceContext) -> SpanContext:
    state = TraceState.from_header([context.state]) if context.state else None
    sampled = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(context.trace_id, context.span_id, False, sampled, state)


def _offset_s() -> float:
    """From the process's clock to Unix time: of a few looks the one that was disturbed least."""
    looks = []
    for _ in range(_LOOKS):
        before_s, now, after_s = clock.monotonic(), clock.now(), clock.monotonic()
        looks.append((after_s - before_s, now.timestamp() - (before_s + after_s) / 2))
    return min(looks)[1]


def _unix_ns(at_s: float, offset_s: float) -> int:
    return int((at_s + offset_s) * 1_000_000) * 1000
