"""Tensors: datatype, shape and bytes, and their encodings in JSON.

A tensor is its datatype, its shape and its bytes: little-endian elements in C order; of BYTES, each
element after its length, four bytes. In JSON that is one of

    {"datatype": "INT32", "shape": [1, 2], "data": [1, 2]}             flat, or nested as the shape
    {"datatype": "INT32", "shape": [1, 2], "base64": "AQAAAAIAAAA="}
"""

import binascii
import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loaded where a tensor becomes an array: it takes 0.1 s and 20 MB
    import numpy as np
    from numpy.typing import NDArray

BYTES = "BYTES"
DTYPES: Mapping[str, str] = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    BYTES: "O",
}
"""By datatype: the code of its elements in numpy."""
MAX_RANK = 32
MAX_SIZE = 2**31 - 1  # elements of one dimension
LENGTH_BYTES = 4
SHOWN = 100  # characters of a client's text in an error, as `repr` writes them


class TensorError(ValueError):
    """A tensor, or a request for one, is wrong; the message says how to mend it."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A checked tensor."""

    datatype: str
    shape: tuple[int, ...]
    raw: bytes  #: elements, as the module describes; they fill the shape exactly

    @classmethod
    def from_bytes(cls, datatype: str, shape: tuple[int, ...], raw: bytes) -> "Tensor":
        """Checks bytes. Raises TensorError where they don't fill this shape."""
        count = math.prod(shape)
        if datatype == BYTES:
            elements = sum(1 for _ in islice(_texts(raw), min(count, len(raw)) + 1))
            if elements != count:
                more = "more" if elements > count else f"{elements} elements"
                raise TensorError(f"has {more}; the shape {list(shape)} has {count}")
        elif len(raw) != (expected := count * item_bytes(datatype)):
            raise TensorError(f"has {len(raw)} bytes; {datatype} {list(shape)} has {expected}")
        elif datatype == "BOOL" and raw.translate(None, b"\0\1"):
            raise TensorError("a BOOL is the byte 0 or 1")
        return cls(datatype, shape, raw)

    @classmethod
    def from_data(cls, datatype: str, shape: tuple[int, ...], data: Any) -> "Tensor":
        """Encodes JSON data. Raises TensorError where it isn't of this datatype and shape."""
        elements = _flat(data, shape)
        if len(elements) != (count := math.prod(shape)):
            raise TensorError(f"has {len(elements)} elements; the shape {list(shape)} has {count}")
        return cls(datatype, shape, _packed(datatype, elements))

    @classmethod
    def from_array(cls, datatype: str, array: "NDArray[Any]") -> "Tensor":
        """Encodes an array of this datatype; for BYTES, of bytes or texts. Raises TensorError."""
        if datatype == BYTES:
            return cls(datatype, array.shape, _joined(array.ravel().tolist()))
        if array.dtype != (dtype := _dtype(datatype)):
            raise TensorError(f"is of {array.dtype}; {datatype} is {dtype}")
        return cls(datatype, array.shape, array.tobytes())

    def array(self) -> "NDArray[Any]":
        """Returns a read-only array; for BYTES, one of bytes objects."""
        import numpy as np

        if self.datatype != BYTES:
            return np.frombuffer(self.raw, DTYPES[self.datatype]).reshape(self.shape)
        array = np.empty(math.prod(self.shape), object)
        array[:] = list(_texts(self.raw))
        return array.reshape(self.shape)

    def data(self) -> "NDArray[Any] | list[str]":
        """Returns the elements, flat, for JSON. Raises TensorError where JSON can't hold them."""
        if self.datatype == BYTES:
            try:
                return [text.decode() for text in _texts(self.raw)]
            except UnicodeDecodeError:
                raise TensorError("holds bytes that are no UTF-8; ask for binary data") from None
        import numpy as np

        array = self.array().ravel()
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise TensorError("holds NaN or an infinity, which JSON can't; ask for binary data")
        return array

    def as_json(self, *, plain: bool = False) -> dict[str, Any]:
        """Returns the JSON object; plain: with `data`, where JSON can hold it."""
        header: dict[str, Any] = {"datatype": self.datatype, "shape": list(self.shape)}
        if plain and (data := self._storable()) is not None:
            return {**header, "data": data}
        return {**header, "base64": b64encode(self.raw).decode()}

    def _storable(self) -> list[Any] | None:
        """Returns `data` where a row of the database can hold it too."""
        try:
            data = self.data()
        except TensorError:
            return None
        if isinstance(data, list):
            return None if any("\0" in text for text in data) else data
        numbers: list[Any] = data.tolist()
        return numbers


class NamedTensors(dict[str, Tensor]):
    """The tensors of one output, by name. plain: written with `data`."""

    def __init__(self, tensors: Iterable[tuple[str, Tensor]], *, plain: bool) -> None:
        super().__init__(tensors)
        self.plain = plain

    def as_json(self) -> dict[str, Any]:
        """Returns the JSON object of the output."""
        return {name: tensor.as_json(plain=self.plain) for name, tensor in self.items()}


def item_bytes(datatype: str) -> int:
    """Returns the size of an element that isn't of BYTES. Raises TensorError."""
    code = _code(datatype)
    return int(code[-1]) if code[-1].isdigit() else 1


def _dtype(datatype: str) -> "np.dtype[Any]":
    import numpy as np

    return np.dtype(_code(datatype))


def _code(datatype: str) -> str:
    if datatype == "BF16":
        raise TensorError("is of BF16, which is not served here; send FP32 or FP16")
    if datatype not in DTYPES:
        raise TensorError(f"is of {repr(datatype)[:SHOWN]}; there are: {', '.join(DTYPES)}")
    return DTYPES[datatype]


def shape_of(value: Any) -> tuple[int, ...]:
    """Reads a shape from JSON. Raises TensorError."""
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise TensorError(f"shape must be a list of up to {MAX_RANK} whole numbers")
    if not all(type(size) is int and 0 <= size <= MAX_SIZE for size in value):
        raise TensorError(f"shape must have whole numbers from 0 to {MAX_SIZE:,}")
    return tuple(value)


def _texts(raw: bytes) -> Iterator[bytes]:
    """Yields the elements of BYTES. Raises TensorError where their lengths don't add up."""
    place = 0
    while place < len(raw):
        start = place + LENGTH_BYTES
        place = start + int.from_bytes(raw[place:start], "little")
        if place > len(raw) or start > len(raw):
            raise TensorError(
                "ends within an element; each is its length (four bytes), then its bytes"
            )
        yield raw[start:place]


def _joined(elements: Sequence[Any]) -> bytes:
    parts = []
    for element in elements:
        try:
            text = element.encode() if isinstance(element, str) else bytes(memoryview(element))
        except UnicodeEncodeError:
            raise TensorError("holds a lone surrogate, which is no text") from None
        except TypeError:
            raise TensorError(f"holds {type_name(element)} where a text belongs") from None
        parts += [len(text).to_bytes(LENGTH_BYTES, "little"), text]
    return b"".join(parts)


def _flat(data: Any, shape: tuple[int, ...]) -> list[Any]:
    """Flattens lists that are nested exactly as the shape says; a transposed one is refused."""
    if not isinstance(data, list):
        raise TensorError("data must be a list")
    if not data or not isinstance(data[0], list):
        return data
    level: list[Any] = [data]
    for length in shape:
        if any(not isinstance(part, list) or len(part) != length for part in level):
            raise TensorError(f"nested data must have the shape {list(shape)}; flat data needn't")
        level = list(chain.from_iterable(level))
    return level


def _packed(datatype: str, elements: list[Any]) -> bytes:
    dtype, kinds = _dtype(datatype), set(map(type, elements))
    if datatype == BYTES:
        _only(elements, kinds, {str}, "a text")
        return _joined(elements)
    if datatype == "BOOL":
        _only(elements, kinds, {bool}, "true or false")
        return bytes(elements)
    _only(elements, kinds, {int, float}, "a number")
    if dtype.kind == "f":
        return _floats(datatype, dtype, elements).tobytes()
    import numpy as np

    if float in kinds:
        elements = _whole(datatype, elements)
    span = np.iinfo(dtype)
    if elements and not (min(elements) >= span.min and max(elements) <= span.max):
        raise TensorError(
            f"holds numbers out of range; {datatype} has {span.min:,} to {span.max:,}"
        )
    return np.array(elements, dtype).tobytes()


def _only(elements: list[Any], kinds: set[type], wanted: set[type], word: str) -> None:
    if not kinds <= wanted:
        other = next(element for element in elements if type(element) not in wanted)
        raise TensorError(f"holds {type_name(other)} where {word} belongs")


def _whole(datatype: str, elements: list[Any]) -> list[int]:
    """JSON knows one kind of number: 3.0 is whole."""
    if any(isinstance(element, float) and not element.is_integer() for element in elements):
        raise TensorError(f"holds a fraction; {datatype} has whole numbers")
    return [int(element) for element in elements]


def _floats(datatype: str, dtype: "np.dtype[Any]", elements: list[Any]) -> "NDArray[Any]":
    import numpy as np

    try:
        with np.errstate(over="ignore"):
            array = np.array(elements, np.float64).astype(dtype)
    except OverflowError:  # an integer beyond every float
        array = np.array([np.inf])
    if not np.isfinite(array).all():
        raise TensorError(
            f"holds numbers out of range; {datatype} reaches {np.finfo(dtype).max:.4g}"
        )
    return array


def type_name(value: Any) -> str:
    """Returns the JSON type of a value, in words."""
    words = {
        bool: "a boolean",
        str: "a text",
        dict: "an object",
        list: "a list",
        type(None): "null",
    }
    return words.get(type(value), "a number")


def output(value: Mapping[str, Any]) -> Tensor:
    """Reads a tensor that a worker wrote."""
    shape = tuple(value["shape"])
    if "data" in value:
        return Tensor.from_data(value["datatype"], shape, value["data"])
    return Tensor(value["datatype"], shape, binascii.a2b_base64(value["base64"]))
