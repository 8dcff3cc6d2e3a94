"""Answers that are equal, close or different."""

import pytest

from api.gateway.routing.comparison import compare


@pytest.mark.parametrize(
    ("one", "other", "outcome"),
    [
        (b'"a"', b'"a"', "equal"),
        (b"[1, 2.0]", b"[1,2]", "equal"),
        (b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}', "equal"),
        (b"[0.5, 0.25]", b"[0.5001, 0.2499]", "close"),
        (b'{"a": [{"score": 0.9}]}', b'{"a": [{"score": 0.90001}]}', "close"),
        (b"[0.0]", b"[0.0005]", "close"),
        (b"[0.5]", b"[0.6]", "different"),
        (b"[0.5]", b"[0.5, 0.5]", "different"),
        (b'"a"', b'"b"', "different"),
        (b"true", b"1", "different"),
        (b'{"a": 1}', b'{"b": 1}', "different"),
        (b"[1]", b'{"a": 1}', "different"),
        (b"null", b"0", "different"),
    ],
)
def test_numbers_alone_may_differ_a_little(one: bytes, other: bytes, outcome: str) -> None:
    assert compare(one, other) == compare(other, one) == outcome
