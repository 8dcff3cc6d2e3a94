"""W3C trace context, as it is read and passed on, and spans: what is made into one, and those of
generations with the attributes that OpenTelemetry names."""

from itertools import pairwise

import pytest

from jobs.errors import NotFound
from jobs.settings import load
from jobs.telemetry.token_times import MOST_TIMES, TokenTimes
from jobs.telemetry.tracing import generation
from jobs.telemetry.tracing import spans as tracing
from jobs.telemetry.tracing.context import CURRENT, TraceContext, new_trace, parse, unpack
from jobs.telemetry.tracing.generation import Generated
from jobs.telemetry.tracing.spans import NO_SPAN
from tests.support.cases import each
from tests.unit.kept_spans import Kept

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"


def read(*header: str) -> TraceContext:
    found = parse(*header)
    assert found
    return found


def test_a_header_is_read_and_written_alike_and_what_is_malformed_is_no_context() -> None:
    found = read(HEADER)
    assert found.header == HEADER
    assert found.headers == {"traceparent": HEADER}
    later = f"cc-{TRACE}-{SPAN}-01-what-comes-later"
    assert read(later).header == HEADER
    assert (new_trace(0.0).sampled, new_trace(1.0).sampled) == (False, True)
    found = read(f"00-{TRACE}-{SPAN}-fe")
    assert not found.sampled
    assert found.header.endswith("-00")
    cases = [
        "",
        None,
        "nonsense",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01é",
    ]
    for header, case in each(cases):
        with case:
            assert parse(header) is None
    assert unpack(None) is unpack("") is unpack("x") is None


def test_a_state_goes_with_it_through_rows_and_messages() -> None:
    found = read(HEADER, "a=1, b=x y")
    child = found.child()
    assert unpack(child.pack()) == child
    assert child.headers["tracestate"] == "a=1, b=x y"
    assert (child.trace_id, child.span_id == found.span_id) == (found.trace_id, False)
    for state, case in each(["a=1\r\nEvil: 1", "a=\x00", "é=1", "a=" + 600 * "x"]):
        with case:
            assert read(HEADER, state).headers == {"traceparent": HEADER}, "that is no header"


def test_what_runs_in_a_span_is_a_part_of_it(kept: Kept) -> None:
    with tracing.server_span("GET", new_trace(1.0).header, None) as outer:
        with tracing.child_span("inner", "client") as inner:
            assert CURRENT.get() == inner.context
        assert CURRENT.get() == outer.context
    assert CURRENT.get() is None
    assert kept.spans == [inner, outer]
    assert inner.parent == outer.context.span_id
    assert outer.since_s <= inner.since_s <= inner.until_s <= outer.until_s


def test_an_exception_is_named_by_its_code_and_what_is_not_sampled_has_no_spans(kept: Kept) -> None:
    with tracing.server_span("GET", new_trace(0.0).header, None) as span:
        assert span.context
        assert tracing.child_span("inner") is NO_SPAN
        assert tracing.current_context() == span.context.header
    assert kept.spans == []
    with pytest.raises(NotFound), tracing.server_span("GET", new_trace(1.0).header, None):
        raise NotFound("what a client wrote")
    with pytest.raises(KeyError), tracing.server_span("GET", new_trace(1.0).header, None):
        raise KeyError("secret")
    assert [span.error for span in kept.spans] == [NotFound.code, "KeyError"]


def test_without_a_parent_the_share_decides_and_without_a_receiver_nothing_is_made() -> None:
    for header in (None, "malformed"):
        made = Kept()
        tracing.set_receiver(made, share=0.0)
        assert tracing.server_span("GET", header, None) is NO_SPAN
        tracing.set_receiver(made, share=1.0)
        with tracing.server_span("GET", header, None) as span:
            assert span.parent == 0
        assert made.spans == [span]
        tracing.stop()
    assert tracing.server_span("GET", new_trace(1.0).header, None) is NO_SPAN
    assert tracing.span_in_trace(new_trace(1.0).pack(), "slice") is NO_SPAN
    assert tracing.current_context() is None


def test_the_usual_variables_name_the_receiver() -> None:
    all_of = "OTEL_EXPORTER_OTLP_ENDPOINT"
    cases = [
        ({}, ""),
        ({all_of: "http://o:4318/"}, "http://o:4318/v1/traces"),
        ({all_of: "https://o/otlp"}, "https://o/otlp/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://o/t"}, "http://o/t"),
        ({all_of: "http://o", "OTEL_SDK_DISABLED": "true"}, ""),
        ({all_of: "http://o", "MILLRACE_OTLP_ENDPOINT": "http://m"}, "http://m"),
    ]
    for (environ, endpoint), case in each(cases):
        with case:
            assert load(environ).otlp_endpoint == endpoint


ONE = Generated(
    "m@1", "worker_1", 1.0, 5.0, 1.5, 2.0, 10, 4, 30, ["stop"], max_tokens=64, temperature=0.7
)


def test_a_generation_has_the_names_of_the_conventions_and_stages_without_a_gap(kept: Kept) -> None:
    parent = new_trace(1.0)
    generation.record(parent.pack(), ONE)
    whole, *stages = kept.spans
    assert (whole.name, whole.parent) == ("chat m@1", parent.span_id)
    assert (whole.since_s, whole.until_s) == (1.0, 5.0)
    found = {name: v for name, v in whole.attributes.items() if name.startswith("gen_ai.")}
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "millrace",
        "gen_ai.request.model": "m@1",
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.temperature": 0.7,
        "gen_ai.response.model": "m@1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.output_tokens": 30,
    }
    assert [(one.name, one.since_s, one.until_s) for one in stages] == [
        ("queue", 1.0, 1.5), ("prefill", 1.5, 2.0), ("decode", 2.0, 5.0)
    ]  # fmt: skip
    assert whole.context
    assert {one.parent for one in stages} == {whole.context.span_id}


def test_a_call_that_never_began_was_in_the_queue_alone_and_one_not_sampled_has_no_spans(
    kept: Kept,
) -> None:
    for unsampled in ("", new_trace(0.0).pack()):
        generation.record(unsampled, ONE)
        assert kept.spans == []
    one = Generated("m@1", "worker_1", 1.0, 5.0, error="deadline_passed")
    generation.record(new_trace(1.0).pack(), one)
    whole, *stages = kept.spans
    assert [(each.name, each.until_s) for each in stages] == [("queue", 5.0)]
    assert whole.error == "deadline_passed"
    assert "gen_ai.request.max_tokens" not in whole.attributes


def times(*steps_s: float) -> TokenTimes:
    found = TokenTimes()
    for one in steps_s:
        found.add(one)
    return found


def test_times_of_tokens_are_those_of_steps_few_however_many_came() -> None:
    assert times(10.0, 10.5, 10.7).since_ms(9.0) == [1000, 1500, 1700]
    assert times(10.0, 10.0, 10.5, 10.5).since_ms(10.0) == [0, 500]
    found = times(*map(float, range(1, 1001))).since_ms(1.0)
    assert MOST_TIMES // 2 < len(found) <= MOST_TIMES
    assert {after - before for before, after in pairwise(found)} == {16_000}
    assert (found[0], found[-1]) == (0, 992_000)
    steady = [n / 100 for n in range(1, 200)]
    assert times(*steady, 7.0, 7.01).longest_gap_s == 7.0 - steady[-1]
    assert times(5.0).longest_gap_s == 0.0
