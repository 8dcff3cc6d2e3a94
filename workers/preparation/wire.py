"""Format of prepared inputs on their way from a prepare worker to a device worker.

    b"MRP1", length of the head (uint32, little-endian), the head (JSON, ASCII), buffers

The head is {"list": bool, "inputs": [[size, data], …]}: one input, or those of an item that is a
list; the tokens that a text lost follow its data, if it was cut. `data` is what `Engine.prepare`
returned: null, true, false, a number and a text stand as they are; everything else is an array that
begins with its kind:

    ["l", …]  list              ["a", dtype, shape, bytes]  numpy array, C order
    ["t", …]  tuple             ["g", dtype, bytes]         numpy scalar
    ["d", [key, value], …]      ["b", bytes]                bytes
    dict with texts as keys

Where `bytes` stands, so many bytes of the buffers belong to it; they follow one another in the
order of the head. dtypes are numpy's names of bool, integers, floats and complex numbers
(`|b1`, `<i4`, `<f2` …). Reading runs no code of the sender, as pickle would, and copies no array.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.engines.protocol import Prepared

_MAGIC = b"MRP1"
_KINDS = "biufc"  # of dtypes that are plain numbers
_PLAIN = (bool, int, float, str, type(None))
_MOST_BYTES = 64 << 20  # of an item: what Redis and a device worker take in one piece


class Unsendable(ValueError):
    """Raised where prepared data holds something that the format doesn't know, or too much."""


class Unreadable(ValueError):
    """Raised where bytes are no prepared inputs, or those of another release."""


@dataclass(frozen=True, slots=True)
class PreparedItem:
    """Prepared inputs of one item."""

    inputs: Sequence[Prepared]
    is_list: bool = False  #: the item is a list, and its output will be one


def dumps(item: PreparedItem) -> bytes:
    """Returns an item as bytes. Raises Unsendable."""
    buffers: list[bytes] = []
    try:
        inputs = [
            [one.size, _written(one.data, buffers), *((one.truncated,) if one.truncated else ())]
            for one in item.inputs
        ]
        head = json.dumps({"list": item.is_list, "inputs": inputs}, separators=(",", ":"))
    except Unsendable:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise Unsendable(f"prepared input can't be sent: {error}") from None
    raw = head.encode("ascii")
    if (size := len(raw) + sum(map(len, buffers))) > _MOST_BYTES:
        raise Unsendable(
            f"prepared input can't be sent: it has {size / (1 << 20):.1f} MiB, and "
            f"{_MOST_BYTES >> 20} MiB at most are sent"
        )
    return b"".join([_MAGIC, len(raw).to_bytes(4, "little"), raw, *buffers])


def loads(raw: bytes) -> PreparedItem:
    """Returns the item of these bytes; its arrays are views of them, and read-only. Raises
    Unreadable."""
    if raw[:4] != _MAGIC:
        raise Unreadable("prepared inputs begin with MRP1: these are of another release, or broken")
    end = 8 + int.from_bytes(raw[4:8], "little")
    try:
        head = json.loads(raw[8:end])
        reader = _Reader(memoryview(raw)[end:])
        inputs = [
            Prepared(size, reader.read(data), *truncated)
            for size, data, *truncated in head["inputs"]
        ]
        return PreparedItem(inputs, bool(head["list"]))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise Unreadable(f"prepared inputs can't be read: {error}") from None


def _written(value: Any, buffers: list[bytes]) -> Any:
    """Returns a value as it stands in the head, and adds its buffers."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        return ["l" if kind is list else "t", *(_written(one, buffers) for one in value)]
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise Unsendable("prepared input can't be sent: keys of its dicts must be texts")
        return ["d", *([key, _written(one, buffers)] for key, one in value.items())]
    if kind in (bytes, bytearray, memoryview):
        buffers.append(bytes(value))
        return ["b", len(buffers[-1])]
    import numpy as np  # only where it may be one: most prepare workers have loaded it

    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _KINDS:
        dtype = value.dtype.newbyteorder("<")
        buffers.append(value.astype(dtype, copy=False).tobytes())
        if isinstance(value, np.generic):
            return ["g", dtype.str, len(buffers[-1])]
        return ["a", dtype.str, list(value.shape), len(buffers[-1])]
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise Unsendable(
        f"prepared input can't be sent: it holds a {name}; `prepare` may return JSON values, "
        "bytes, tuples, and numpy arrays of numbers"
    )


class _Reader:
    """Reads values of a head; the buffers in their order."""

    def __init__(self, buffers: memoryview) -> None:
        self._buffers, self._at = buffers, 0

    def read(self, written: Any) -> Any:
        """Returns the value that was written."""
        if not isinstance(written, list):
            return written
        kind, *rest = written
        if kind == "l":
            return [self.read(one) for one in rest]
        if kind == "t":
            return tuple(self.read(one) for one in rest)
        if kind == "d":
            return {key: self.read(one) for key, one in rest}
        if kind == "b":
            return bytes(self._next(*rest))
        import numpy as np

        dtype = np.dtype(rest[0])
        if dtype.kind not in _KINDS:
            raise ValueError(f"dtype {rest[0]!r} is not one of plain numbers")
        if kind == "g":
            return np.frombuffer(self._next(rest[1]), dtype)[0]
        if kind == "a":
            return np.frombuffer(self._next(rest[2]), dtype).reshape(rest[1])
        raise ValueError(f"kind {kind!r} is not known")

    def _next(self, count: int) -> memoryview:
        piece = self._buffers[self._at : self._at + count]
        if count < 0 or len(piece) < count:
            raise ValueError("they end too early")
        self._at += count
        return piece
