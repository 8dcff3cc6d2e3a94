"""Spans of a worker: sampled calls, slices of sampled jobs, and the launches that have any of them.
A launch and its entries link each other, since it is a part of several traces."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs import clock, ids
from jobs.telemetry.tracing import spans
from jobs.telemetry.tracing.context import TraceContext, new_trace, unpack
from jobs.telemetry.tracing.spans import MOST_LINKS, NO_SPAN, Link, Span
from workers.items.in_flight import InFlightSlice, ItemOutcome
from workers.items.results import error_code
from workers.scheduler.entries import Launch

Sampled = tuple[int, TraceContext]
"""Position of a call in its launch, and its context."""

_traced = dict[InFlightSlice, Counter[str]]()
"""Slices in flight whose job is sampled, with the error codes of what was recorded ("": succeeded);
while there are none, launches don't look at their items."""


# -- slices


def begin_slices(slices: Sequence[InFlightSlice], since_s: float) -> None:
    """Begins the spans of slices whose claim began at `since_s` (monotonic)."""
    for in_flight in slices:
        if (lease := in_flight.lease).traceparent:
            span = spans.span_in_trace(lease.traceparent, "slice", "consumer")
            if span.context and span.context.sampled:
                span.since_s, span.links = since_s, []
                span.set_attributes(
                    messaging__operation__type="process",
                    millrace__job__id=ids.show("job", lease.job_id),
                    millrace__tenant=lease.tenant,
                    millrace__model=lease.model,
                    millrace__seq__start=lease.start,
                    millrace__seq__stop=lease.stop,
                    millrace__epoch=lease.epoch,
                )
                in_flight.span = span
                _traced[in_flight] = Counter()


def count_outcomes(parts: Mapping[InFlightSlice, InFlightSlice]) -> None:
    """Counts outcomes that were recorded while their slices go on."""
    for in_flight, part in parts.items() if _traced else ():
        if in_flight in _traced:
            _traced[in_flight].update(_codes(part.outcomes))


def end_slices(slices: Sequence[InFlightSlice], since_s: float, settled: int) -> None:
    """Ends the spans of slices. since_s: start of their settlement, monotonic; settled: number of
    leases that were still held."""
    now_s = clock.monotonic()
    for in_flight in [one for one in slices if one in _traced] if _traced else ():
        span = in_flight.span
        assert span.context
        failed = _traced[in_flight] + Counter(_codes(in_flight.outcomes))
        rows = failed.total()
        del failed[""]
        span.until_s, span.error = now_s, "lease_lost" if not settled else _worst(failed)
        span.set_attributes(
            millrace__rows=rows,
            millrace__rows__failed=failed.total(),
            millrace__released=in_flight.released,
        )
        settle = Span("settle", span.context.child(), span.context.span_id)
        settle.since_s, settle.until_s = since_s, now_s
        spans.record(settle, span)


def drop_slices(slices: Sequence[InFlightSlice]) -> None:
    """Drops slices that have left the worker, settled or not."""
    for in_flight in slices if _traced else ():
        _traced.pop(in_flight, None)


def _codes(outcomes: Sequence[ItemOutcome]) -> Iterable[str]:
    """Yields the error code of each outcome; "" for one that succeeded."""
    for one in outcomes:
        yield error_code(one.output) if isinstance(one.output, BaseException) else ""


# -- launches


class LaunchTrace:
    """Spans of a launch with a sampled entry. context: parent of the engine's own spans: the one
    entry of the launch, or the launch."""

    def __init__(
        self, launch: Launch, calls: Sequence[Sampled], slices: Counter[InFlightSlice]
    ) -> None:
        self._launch, self._calls = launch, calls
        links = [Link(context) for _, context in calls]
        for in_flight, rows in slices.items():
            assert in_flight.span.context
            links.append(Link(in_flight.span.context, {"millrace.rows": rows}))
        self._own = new_trace(1.0)
        self._span = Span("launch", self._own, kind="consumer", links=links[:MOST_LINKS])
        for in_flight in slices:
            if isinstance(so_far := in_flight.span.links, list) and len(so_far) < MOST_LINKS:
                so_far.append(Link(self._own))
        self._engines = [context.child() for _, context in calls]
        self.context = self._own
        if len(launch.entries) == 1:
            self.context = self._engines[0] if calls else links[0].context

    def record(self, model: str, worker: str, outputs: Sequence[Any], id: int | None) -> None:
        """Records all spans once the calls were answered. outputs: one an entry; id: the launch's,
        if it had items."""
        launch, span = self._launch, self._span
        ended_s, now_s = launch.started_s + launch.engine_s, clock.monotonic()
        failed = Counter(error_code(o) for o in outputs if isinstance(o, BaseException))
        span.since_s, span.until_s, span.error = launch.closed_s, ended_s, _worst(failed)
        about = {
            "millrace.model": model,
            "millrace.worker": worker,
            "millrace.lane": launch.entries[0].lane,
            "millrace.reason": launch.reason,
            "millrace.rows": len(launch.entries),
        }
        span.attributes = about | {
            "messaging.operation.type": "process",
            "messaging.batch.message_count": len(launch.entries),
            "millrace.rows.calls": len(launch.calls),
            "millrace.rows.failed": failed.total(),
            "millrace.units": launch.units,
            "millrace.units.padded": launch.padded_units,
            "millrace.predicted_ms": round(launch.predicted_s * 1000, 3),
            "millrace.launch.id": id,
        }
        spans.record(span)
        for (n, context), engine in zip(self._calls, self._engines, strict=True):
            call, output = launch.calls[n], outputs[n]
            prepared_s = max(call.arrived_s, launch.closed_s - call.prepare_s)
            times = (
                ("queue", context.child(), call.arrived_s, prepared_s),
                ("preprocess", context.child(), prepared_s, launch.closed_s),
                ("batch", context.child(), launch.closed_s, launch.started_s),
                ("engine", engine, launch.started_s, ended_s),
                ("postprocess", context.child(), ended_s, now_s),
            )
            stages = [
                Span(name, its, context.span_id, since_s=min(since_s, until_s), until_s=until_s)
                for name, its, since_s, until_s in times
            ]
            stages[0].attributes = {"millrace.lane": call.lane}
            stages[3].attributes, stages[3].links = about, [Link(self._own)]
            stages[3].error = error_code(output) if isinstance(output, BaseException) else ""
            spans.record(*stages)


def trace_launch(launch: Launch) -> LaunchTrace | None:
    """Returns None where nothing in the launch is sampled, without a look at each item."""
    if not spans.is_enabled():
        return None
    calls = [
        (n, context)
        for n, call in enumerate(launch.calls)
        if call.owner.trace and (context := unpack(call.owner.trace))
    ]
    slices = Counter[InFlightSlice]()
    if _traced and launch.items:
        slices.update(item.owner for item in launch.items if item.owner.span is not NO_SPAN)
    return LaunchTrace(launch, calls, slices) if calls or slices else None


def _worst(failed: Counter[str]) -> str:
    """Returns the most frequent error code."""
    return failed.most_common(1)[0][0] if failed else ""
