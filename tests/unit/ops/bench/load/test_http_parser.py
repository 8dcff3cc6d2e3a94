"""An answer is read right however the network cuts it."""

import pytest

from ops.bench.load.http_parser import HttpResponse, request

HEAD = b"HTTP/1.1 200 OK\r\nserver: x\r\nContent-Length: 5\r\n\r\n"
ANSWER = HEAD + b"hello"


@pytest.mark.parametrize("size", range(1, len(ANSWER) + 1))
def test_an_answer_in_pieces_of_any_size_is_complete_with_its_last_byte(size: int) -> None:
    answer = HttpResponse()
    pieces = [ANSWER[start : start + size] for start in range(0, len(ANSWER), size)]
    assert [answer.feed(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert (answer.status, answer.body, answer.closes) == (200, b"hello", False)


def test_an_answer_without_a_body_is_complete_with_its_head() -> None:
    answer = HttpResponse()
    assert answer.feed(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nConnection: close\r\n\r\n")
    assert (answer.status, answer.body, answer.closes) == (503, b"", True)


def test_an_answer_that_does_not_say_its_length_is_refused() -> None:
    with pytest.raises(ValueError, match="without Content-Length"):
        HttpResponse().feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")


def test_a_request_says_its_length() -> None:
    sent = request("localhost:1", "/infer", '{"é": 1}'.encode())
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /infer HTTP/1.1\r\nHost: localhost:1\r\n")
    assert head.endswith(b"Content-Length: %d" % len(body))
    assert b"Authorization" not in head


def test_a_request_with_a_key_carries_it_and_nothing_else_changes() -> None:
    with_key = request("localhost:1", "/infer", b"{}", "mk_x")
    assert b"\r\nAuthorization: Bearer mk_x\r\n" in with_key
    without = with_key.replace(b"Authorization: Bearer mk_x\r\n", b"")
    assert without == request("localhost:1", "/infer", b"{}")
