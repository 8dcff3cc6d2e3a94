"""W3C trace context, as it is read and passed on, and spans: what is made into one."""

import pytest

from jobs.errors import NotFound
from jobs.settings import load
from jobs.telemetry.tracing import spans as tracing
from jobs.telemetry.tracing.context import CURRENT, TraceContext, new_trace, parse, unpack
from jobs.telemetry.tracing.spans import NO_SPAN
from tests.support.cases import each
from tests.unit.kept_spans import Kept

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"


def read(*header: str) -> TraceContext:
    found = parse(*header)
    assert found
    return found


def test_a_header_is_read_and_written_alike_with_its_sampled_flag() -> None:
    found = read(HEADER)
    assert found.header == HEADER
    assert found.headers == {"traceparent": HEADER}
    later = f"cc-{TRACE}-{SPAN}-01-what-comes-later"
    assert read(later).header == HEADER
    found = read(f"00-{TRACE}-{SPAN}-fe")
    assert not found.sampled
    assert found.header.endswith("-00")


def test_what_is_malformed_is_no_context() -> None:
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


def test_a_trace_of_our_own_is_sampled_by_its_share() -> None:
    assert (new_trace(0.0).sampled, new_trace(1.0).sampled) == (False, True)


def test_what_runs_in_a_span_is_a_part_of_it(kept: Kept) -> None:
    with tracing.server_span("GET", new_trace(1.0).header, None) as outer:
        with tracing.child_span("inner", "client") as inner:
            assert CURRENT.get() == inner.context
        assert CURRENT.get() == outer.context
    assert CURRENT.get() is None
    assert kept.spans == [inner, outer]
    assert outer.context
    assert inner.parent == outer.context.span_id
    assert outer.since_s <= inner.since_s <= inner.until_s <= outer.until_s


def test_an_exception_is_named_by_its_code(kept: Kept) -> None:
    with pytest.raises(NotFound), tracing.server_span("GET", new_trace(1.0).header, None):
        raise NotFound("what a client wrote")
    with pytest.raises(KeyError), tracing.server_span("GET", new_trace(1.0).header, None):
        raise KeyError("secret")
    assert [span.error for span in kept.spans] == [NotFound.code, "KeyError"]


def test_what_is_not_sampled_has_a_context_and_no_spans(kept: Kept) -> None:
    with tracing.server_span("GET", new_trace(0.0).header, None) as span:
        assert span.context
        assert tracing.child_span("inner") is NO_SPAN
        assert tracing.current_context() == span.context.header
    assert kept.spans == []


@pytest.mark.parametrize("header", [None, "malformed"])
def test_without_a_parent_the_share_decides(header: str | None) -> None:
    made = Kept()
    tracing.set_receiver(made, share=0.0)
    assert tracing.server_span("GET", header, None) is NO_SPAN
    tracing.set_receiver(made, share=1.0)
    with tracing.server_span("GET", header, None) as span:
        assert span.parent == 0
    assert made.spans == [span]
    tracing.stop()


def test_without_a_receiver_nothing_is_made() -> None:
    assert tracing.server_span("GET", new_trace(1.0).header, None) is NO_SPAN
    assert tracing.span_in_trace(new_trace(1.0).pack(), "slice") is NO_SPAN
    assert tracing.current_context() is None


def test_the_usual_variables_name_the_receiver() -> None:
    cases = [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://o:4318/"}, "http://o:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://o/otlp"}, "https://o/otlp/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://o/t"}, "http://o/t"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://o", "OTEL_SDK_DISABLED": "true"}, ""),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://o", "MILLRACE_OTLP_ENDPOINT": "http://m"},
            "http://m",
        ),
    ]
    for (environ, endpoint), case in each(cases):
        with case:
            assert load(environ).otlp_endpoint == endpoint
