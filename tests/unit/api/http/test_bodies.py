"""Bodies that may be parsed beside other requests."""

import io

import pytest

from api.http import bodies


@pytest.mark.parametrize(
    ("body", "heavy"),
    [
        (b'{"model": "echo", "input": "x"}', False),
        (b'"' + b"x" * 65_000 + b'"', False),
        (b'"' + b"x" * 65_536 + b'"', True),
        (b"[" + b"1," * 4000 + b"1]", False),
        (b"[" + b"[]," * 4000 + b"[]]", True),
        (b"{" + b'"a":1,' * 4000 + b'"b":1}', True),
        (b"{" * 5000, True),
    ],
)
def test_what_is_long_or_of_many_values_is_heavy_texts_that_are_tokenized_sooner(
    body: bytes, heavy: bool
) -> None:
    assert bodies.is_heavy(body) is heavy
    file = io.BytesIO(body)
    assert bodies.is_heavy_file(file) is heavy
    assert file.tell() == 0
    assert bodies.is_heavy(b"x" * 9000, 8192)
    assert not bodies.is_heavy(b"x" * 8000, 8192)
