"""Spans of launches: links, errors, and the context that an upstream receives."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from jobs.calls.messages import Call
from jobs.store.queue.claim import Lease
from jobs.telemetry.tracing.context import TraceContext, new_trace
from jobs.telemetry.tracing.spans import Span
from tests.unit.kept_spans import Kept
from workers.device.monitoring import tracing
from workers.engines.protocol import Transient
from workers.items.in_flight import ClaimedBatch, InFlightSlice, ItemOutcome
from workers.scheduler.entries import Entry, Launch


def launch_of(kept: Kept) -> Span:
    [found] = [span for span in kept.spans if span.name == "launch"]
    return found


def call(context: TraceContext | None = None) -> Entry:
    owner = Call("call_1", "{}/0", "t", "x", 1, "api", trace=context.pack() if context else "")
    return Entry(owner, 0, "{}/0", 0, 1, None, arrived_s=1.0)


def slice_of(context: TraceContext | None = None) -> InFlightSlice:
    job = UUID(int=7)
    packed = context.pack() if context else None
    claimed = ClaimedBatch([Lease(job, 0, 9, 1, "t", "m@1", "{}", traceparent=packed)])
    tracing.begin_slices(claimed.slices, 0.5)
    return claimed.slices[0]


def launched(calls: Sequence[Entry], slices: Sequence[InFlightSlice] = ()) -> Launch:
    items = [Entry(in_flight, n, "{}/0", 0, 1, None, 1.0) for n, in_flight in enumerate(slices)]
    return Launch({}, "pace", calls, items, closed_s=2.0, started_s=2.5, engine_s=1.0)


def record(launch: Launch, outputs: Sequence[Any]) -> None:
    tracing.trace_launch(launch).record("m@1", "7", outputs, 1)


def test_a_launch_without_anything_sampled_is_not_traced(kept: Kept) -> None:
    assert tracing.trace_launch(launched([call()], [slice_of(), slice_of(new_trace(0.0))])) is None


def test_all_that_is_sampled_is_linked_a_slice_once(kept: Kept) -> None:
    one, other, job = new_trace(1.0), new_trace(1.0), new_trace(1.0)
    in_flight = slice_of(job)
    items = [in_flight, in_flight, slice_of()]
    record(launched([call(one), call(), call(other)], items), ["x"] * 6)
    assert in_flight.span.context
    linked = {link.context: dict(link.attributes) for link in launch_of(kept).links}
    assert linked == {one: {}, other: {}, in_flight.span.context: {"millrace.rows": 2}}
    assert [link.context for link in in_flight.span.links] == [launch_of(kept).context]
    for context in (one, other):
        engine = kept.of(context)["engine"]
        assert engine.parent == context.span_id
        assert [link.context for link in engine.links] == [launch_of(kept).context]
    tracing.drop_slices([in_flight])


def test_what_failed_has_an_error_and_the_rest_has_none(kept: Kept) -> None:
    fine, guilty = new_trace(1.0), new_trace(1.0)
    record(launched([call(fine), call(guilty)]), ["x", Transient("quotes an input")])
    assert kept.of(fine)["engine"].error == ""
    assert kept.of(guilty)["engine"].error == "transient"
    assert kept.of(guilty)["queue"].error == ""
    assert launch_of(kept).error == "transient"
    assert launch_of(kept).attributes["millrace.rows.failed"] == 1
    assert "quotes" not in repr(kept.spans)


def test_a_slice_lasts_until_it_is_settled_or_fails_where_it_was_not_ours_any_more(
    kept: Kept,
) -> None:
    job = new_trace(1.0)
    in_flight = slice_of(job)
    failed = ItemOutcome(1, 1, 0.0, None, ValueError("an input"))
    in_flight.outcomes = [ItemOutcome(0, 1, 0.0, None, "x"), failed]
    tracing.end_slices([in_flight], 3.0, settled=1)
    mine, settle = kept.of(job)["slice"], kept.of(job)["settle"]
    assert (mine.parent, mine.since_s, mine.error) == (job.span_id, 0.5, "engine_error")
    assert (settle.since_s, settle.until_s) == (3.0, mine.until_s)
    assert mine.attributes["millrace.rows"] == 2
    tracing.drop_slices([in_flight])
    tracing.end_slices([in_flight], 3.0, settled=1)
    assert len(kept.spans) == 2
    in_flight = slice_of(job := new_trace(1.0))
    tracing.end_slices([in_flight], 3.0, settled=0)
    assert kept.of(job)["slice"].error == "lease_lost"
    tracing.drop_slices([in_flight])


def test_what_an_engine_asks_is_a_part_of_its_one_entry_or_of_the_launch(kept: Kept) -> None:
    one, job = new_trace(1.0), new_trace(1.0)
    in_flight = slice_of(job)
    alone = tracing.trace_launch(launched([call(one)])).context
    assert (alone.trace_id, alone.span_id == one.span_id) == (one.trace_id, False)
    item = tracing.trace_launch(launched([], [in_flight]))
    assert item.context == in_flight.span.context
    shared = tracing.trace_launch(launched([call(one), call()]))
    assert shared.context.trace_id not in (one.trace_id, job.trace_id)
    tracing.drop_slices([in_flight])


def test_where_nothing_is_traced_nothing_is_looked_at() -> None:
    assert tracing.trace_launch(SimpleNamespace()) is None  # it has no entries at all
