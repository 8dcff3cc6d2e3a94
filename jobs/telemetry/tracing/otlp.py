"""Export of spans by OTLP over HTTP, in batches, from a thread.

The queue is bounded: if the receiver is unavailable or slow, spans are lost and nothing waits.
"""

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
from jobs.settings import redacted
from jobs.telemetry.tracing.context import TraceContext
from jobs.telemetry.tracing.spans import Span

_log = logging.getLogger(__name__)
_PATH = "/v1/traces"
_FLUSH_S = 3.0  # at the end of a process; shorter than its supervisor's patience
_CLOCK_SAMPLES = 3


class OtlpReceiver:
    """Receiver that sends to an OTLP endpoint.

    endpoint: its address; the path defaults to /v1/traces. The standard OTEL_* variables set
    headers, certificates, timeouts, batch sizes and the resource.
    """

    def __init__(self, endpoint: str, process: str) -> None:
        # It logs each attempt; `_LoggedExporter` logs changes only.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        url = endpoint.rstrip("/")
        url = url if urlsplit(url).path else url + _PATH
        exporter = _LoggedExporter(OTLPSpanExporter(url), redacted(url))
        self._batches = BatchSpanProcessor(exporter)
        self._scope = InstrumentationScope("millrace", version("millrace"))
        self._resource = _resource(process)

    def add(self, spans: Sequence[Span]) -> None:
        """Queues spans."""
        offset_s = _offset_s()
        for span in spans:
            self._batches.on_end(self._readable(span, offset_s))

    def stop(self) -> None:
        """Sends what is queued, for a few seconds at most."""
        flushing = threading.Thread(target=self._batches.shutdown, daemon=True)
        flushing.start()
        flushing.join(_FLUSH_S)

    def _readable(self, span: Span, offset_s: float) -> ReadableSpan:
        assert span.context
        parent = None
        if span.parent:
            parent = SpanContext(span.context.trace_id, span.parent, is_remote=False)
        error = {"error.type": span.error} if span.error else {}
        return ReadableSpan(
            span.name,
            _span_context(span.context),
            parent,
            self._resource,
            {name: value for name, value in span.attributes.items() if value is not None} | error,
            links=[Link(_span_context(link.context), link.attributes) for link in span.links],
            kind=SpanKind[span.kind.upper()],
            status=Status(StatusCode.ERROR if span.error else StatusCode.UNSET),
            start_time=_unix_ns(span.since_s, offset_s),
            end_time=_unix_ns(span.until_s, offset_s),
            instrumentation_scope=self._scope,
        )


class _LoggedExporter(SpanExporter):
    """Exporter that logs when the receiver starts to fail and when it recovers."""

    def __init__(self, inner: OTLPSpanExporter, address: str) -> None:
        self._inner, self._address, self._failing = inner, address, False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends spans and logs a change of state."""
        result = self._inner.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            _log.warning("%s accepts no spans: they are lost until it does", self._address)
        elif self._failing and not failed:
            _log.info("%s accepts spans again", self._address)
        self._failing = failed
        return result

    def shutdown(self) -> None:
        """Closes the exporter."""
        self._inner.shutdown()  # type: ignore[no-untyped-call]


def _resource(process: str) -> Resource:
    """Returns the resource of this process; OTEL_* variables override ours."""
    ours: dict[str, str | int] = {
        "service.name": f"millrace-{process}",
        "service.namespace": "millrace",
        "service.version": version("millrace"),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    return Resource.create().merge(Resource(ours)).merge(OTELResourceDetector().detect())


def _span_context(context: TraceContext) -> SpanContext:
    state = TraceState.from_header([context.state]) if context.state else None
    sampled = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(context.trace_id, context.span_id, False, sampled, state)


def _offset_s() -> float:
    """Returns Unix time minus the process's clock, s: the least disturbed of a few samples."""
    samples = []
    for _ in range(_CLOCK_SAMPLES):
        before_s, now, after_s = clock.monotonic(), clock.now(), clock.monotonic()
        samples.append((after_s - before_s, now.timestamp() - (before_s + after_s) / 2))
    return min(samples)[1]


def _unix_ns(at_s: float, offset_s: float) -> int:
    return int((at_s + offset_s) * 1_000_000) * 1000
