"""Vectors as their bytes: outputs that are one row of float16 or float32.

JSON takes three times the bytes of a float32 and, in Python, ten times the time, once an item; so a
result keeps the numbers themselves, and JSON is written where somebody reads it. A packed vector is
the letter of its type ("e" or "f", as in `struct`), then its numbers, little-endian. In a result
that is read it is a text, `#` and the same bytes in hexadecimal, which no JSON begins with.
"""

import sys
from binascii import unhexlify
from collections.abc import Sequence
from typing import Any

import orjson

MARK = "#"
MOST_BYTES = 32_768
"""Numbers of a longer vector are stored as JSON, which may lie in the blob store."""

_TYPES = {"e": "<f2", "f": "<f4"}


def pack_all(outputs: Sequence[Any]) -> list[bytes] | None:
    """Packs outputs that are all finite vectors of one type and length; None where one isn't."""
    np = sys.modules.get("numpy")  # an engine with such outputs has loaded it
    if np is None or not outputs or not _is_vector(np, first := outputs[0]):
        return None
    kind, shape = first.dtype, first.shape
    if set(map(type, outputs)) != {np.ndarray} or any(
        one.shape != shape or one.dtype != kind for one in outputs
    ):
        return None
    rows = np.stack(outputs)
    if not np.isfinite(rows).all():
        return None
    raw, size = rows.astype(_TYPES[kind.char], copy=False).tobytes(), first.nbytes
    letter = kind.char.encode()
    return [letter + raw[at : at + size] for at in range(0, len(raw), size)]


def _is_vector(np: Any, output: Any) -> bool:
    return (
        type(output) is np.ndarray
        and output.ndim == 1
        and output.dtype.char in _TYPES
        and 0 < output.nbytes <= MOST_BYTES
    )


def numbers(packed: bytes) -> Any:
    """Returns the numbers of a packed vector, [n] of float16 or float32."""
    import numpy as np

    return np.frombuffer(packed[1:], _TYPES[chr(packed[0])])


def array_json(array: Any) -> bytes:
    """Returns an array of numbers as JSON text, each number as short as its type allows.

    Raises orjson.JSONEncodeError for layouts that it can't write."""
    return orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)


def from_text(text: str | bytes) -> bytes:
    """Returns the packed vector of an output as results are read."""
    return unhexlify(text[1:])


def as_json(text: str | bytes) -> bytes:
    """Returns the JSON text of a vector as results are read."""
    return array_json(numbers(from_text(text)))
