"""Bodies as lines and events, however their chunks fall."""

import time

import pytest

from millrace.wire import Events, Lines

BODY = b"a\n\nbcd\r\n" + "\u2028".encode() + b"\nend"
LINES = [b"a", b"", b"bcd\r", "\u2028".encode(), b"end"]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(("body", "found"), [(BODY, LINES), (BODY + b"\n", LINES), (b"", [])])
def test_a_body_is_split_at_newlines_alone(body: bytes, found: list[bytes], size: int) -> None:
    lines = Lines()
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    assert [line for chunk in chunks for line in lines.feed(chunk)] + lines.end() == found


def test_an_event_is_whole_or_is_not_there_and_a_long_line_costs_as_much_as_short_ones() -> None:
    lines = ["data: 1", "id: a/0", "", ": keep-alive", "", "event: x", "data: 2", "id: a/1"]
    events = Events()
    assert list(filter(None, map(events.feed, lines))) == [("a/0", "1")]
    lines, chunk, count = Lines(), b"x" * 4096, 20_000
    began_s = time.process_time()
    assert not any(lines.feed(chunk) for _ in range(count))
    assert len(lines.feed(b"\n")[0]) == count * len(chunk)
    assert time.process_time() - began_s < 5  # copying it for each chunk takes minutes
