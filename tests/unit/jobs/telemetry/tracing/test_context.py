"""W3C trace context, as it is read and passed on."""

import pytest

from jobs.telemetry.tracing.context import TraceContext, new_trace, parse, unpack
from tests.support.cases import each

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"


def read(*header: str) -> TraceContext:
    found = parse(*header)
    assert found
    return found


def test_a_header_is_read_and_written_alike() -> None:
    found = read(HEADER)
    assert found.header == HEADER
    assert found.headers == {"traceparent": HEADER}


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


def test_a_later_version_may_have_more() -> None:
    assert read(f"cc-{TRACE}-{SPAN}-01-what-comes-later").header == HEADER


def test_only_the_sampled_flag_is_passed_on() -> None:
    found = read(f"00-{TRACE}-{SPAN}-fe")
    assert not found.sampled
    assert found.header.endswith("-00")


def test_a_state_goes_with_it_through_rows_and_messages() -> None:
    found = read(HEADER, "a=1, b=x y")
    child = found.child()
    assert unpack(child.pack()) == child
    assert child.headers["tracestate"] == "a=1, b=x y"
    assert (child.trace_id, child.span_id == found.span_id) == (found.trace_id, False)


@pytest.mark.parametrize("state", ["a=1\r\nEvil: 1", "a=\x00", "é=1", "a=" + 600 * "x"])
def test_a_state_that_is_no_header_is_left_out(state: str) -> None:
    assert read(HEADER, state).headers == {"traceparent": HEADER}


@pytest.mark.parametrize("packed", [None, "", "x"])
def test_nothing_unpacks_to_nothing(packed: str | None) -> None:
    assert unpack(packed) is None


@pytest.mark.parametrize(("share", "sampled"), [(0.0, False), (1.0, True)])
def test_a_trace_of_our_own_is_sampled_by_its_share(share: float, sampled: bool) -> None:
    assert new_trace(share).sampled is sampled
