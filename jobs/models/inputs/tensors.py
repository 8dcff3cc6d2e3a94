"""Named tensors: how a model declares them, how they are checked, and how they travel.

A tensor is its datatype, its shape and its bytes: little-endian elements in C order; of BYTES, each
element after its length, four bytes. In JSON that is one of

    {"datatype": "INT32", "shape": [1, 2], "data": [1, 2]}             flat, or nested as the shape
    {"datatype": "INT32", "shape": [1, 2], "base64": "AQAAAAIAAAA="}

and the input of a model {"inputs": {name: tensor, …}, "outputs": [the names wanted]}. The first
dimension of every tensor counts rows; what one request sends stays together in a launch.
"""

import binascii
import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

BYTES = "BYTES"
DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    BYTES: np.dtype("O"),
}
MAX_RANK = 32
_MOST = 2**31 - 1  # of one dimension
_LENGTH_BYTES = 4
_SHOWN = 100  # characters of what a client wrote, in an error; as Python writes it, so it is a text
_KEYS = frozenset({"inputs", "outputs"})


class TensorError(ValueError):
    """What is wrong with a tensor, or with what asks for one; the message says how to mend it."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """raw: its elements, as the module says; they fill the shape exactly."""

    datatype: str
    shape: tuple[int, ...]
    raw: bytes

    @classmethod
    def from_bytes(cls, datatype: str, shape: tuple[int, ...], raw: bytes) -> "Tensor":
        """Raises TensorError where these bytes don't fill this shape."""
        count = math.prod(shape)
        if datatype == BYTES:
            found = sum(1 for _ in islice(_texts(raw), min(count, len(raw)) + 1))
            if found != count:
                more = "more" if found > count else f"{found} elements"
                raise TensorError(f"has {more}; the shape {list(shape)} has {count}")
        elif len(raw) != (expected := count * _dtype(datatype).itemsize):
            raise TensorError(f"has {len(raw)} bytes; {datatype} {list(shape)} has {expected}")
        elif datatype == "BOOL" and raw.translate(None, b"\0\1"):
            raise TensorError("a BOOL is the byte 0 or 1")
        return cls(datatype, shape, raw)

    @classmethod
    def from_data(cls, datatype: str, shape: tuple[int, ...], data: Any) -> "Tensor":
        """data: what JSON holds of it. Raises Wrong where that isn't of this datatype and shape."""
        elements = _flat(data, shape)
        if len(elements) != (count := math.prod(shape)):
            raise TensorError(f"has {len(elements)} elements; the shape {list(shape)} has {count}")
        return cls(datatype, shape, _packed(datatype, elements))

    @classmethod
    def from_array(cls, datatype: str, array: NDArray[Any]) -> "Tensor":
        """Of an array of just this datatype; BYTES, of bytes or texts. Raises Wrong."""
        if datatype == BYTES:
            return cls(datatype, array.shape, _joined(array.ravel().tolist()))
        if array.dtype != (dtype := _dtype(datatype)):
            raise TensorError(f"is of {array.dtype}; {datatype} is {dtype}")
        return cls(datatype, array.shape, array.tobytes())

    def array(self) -> NDArray[Any]:
        """Read-only, but for BYTES: an array of bytes objects."""
        if self.datatype != BYTES:
            return np.frombuffer(self.raw, DTYPES[self.datatype]).reshape(self.shape)
        array = np.empty(math.prod(self.shape), object)
        array[:] = list(_texts(self.raw))
        return array.reshape(self.shape)

    def data(self) -> NDArray[Any] | list[str]:
        """Its elements, flat, as JSON can hold them. Raises TensorError where JSON can't."""
        if self.datatype == BYTES:
            try:
                return [text.decode() for text in _texts(self.raw)]
            except UnicodeDecodeError:
                raise TensorError("holds bytes that are no UTF-8; ask for binary data") from None
        array = self.array().ravel()
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise TensorError("holds NaN or an infinity, which JSON can't; ask for binary data")
        return array

    def as_json(self, *, plain: bool = False) -> dict[str, Any]:
        """plain: with `data`, where JSON can hold it."""
        found: dict[str, Any] = {"datatype": self.datatype, "shape": list(self.shape)}
        if plain and (data := self._storable()) is not None:
            return {**found, "data": data}
        return {**found, "base64": b64encode(self.raw).decode()}

    def _storable(self) -> list[Any] | None:
        """`data`, where a row can hold it too."""
        try:
            data = self.data()
        except TensorError:
            return None
        if isinstance(data, list):
            return None if any("\0" in text for text in data) else data
        numbers: list[Any] = data.tolist()
        return numbers


class NamedTensors(dict[str, Tensor]):
    """The tensors of one output, by their names. plain: as they are to be written."""

    def __init__(self, tensors: Iterable[tuple[str, Tensor]], *, plain: bool) -> None:
        super().__init__(tensors)
        self.plain = plain

    def as_json(self) -> dict[str, Any]:
        return {name: tensor.as_json(plain=self.plain) for name, tensor in self.items()}


def _dtype(datatype: str) -> np.dtype[Any]:
    if datatype == "BF16":
        raise TensorError("is of BF16, which is not served here; send FP32 or FP16")
    if datatype not in DTYPES:
        raise TensorError(f"is of {repr(datatype)[:_SHOWN]}; there are: {', '.join(DTYPES)}")
    return DTYPES[datatype]


def shape_of(value: Any) -> tuple[int, ...]:
    """A shape as JSON holds it. Raises TensorError."""
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise TensorError(f"shape must be a list of up to {MAX_RANK} whole numbers")
    if not all(type(size) is int and 0 <= size <= _MOST for size in value):
        raise TensorError(f"shape must have whole numbers from 0 to {_MOST:,}")
    return tuple(value)


def _texts(raw: bytes) -> Iterator[bytes]:
    """The elements of BYTES. Raises TensorError where their lengths don't add up."""
    place = 0
    while place < len(raw):
        start = place + _LENGTH_BYTES
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
            raise TensorError(f"holds {_word(element)} where a text belongs") from None
        parts += [len(text).to_bytes(_LENGTH_BYTES, "little"), text]
    return b"".join(parts)


def _flat(data: Any, shape: tuple[int, ...]) -> list[Any]:
    """Nested lists are as the shape says, at each depth: what looks transposed is refused."""
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
        raise TensorError(f"holds {_word(other)} where {word} belongs")


def _whole(datatype: str, elements: list[Any]) -> list[int]:
    """JSON knows one kind of number: 3.0 is whole."""
    if any(isinstance(element, float) and not element.is_integer() for element in elements):
        raise TensorError(f"holds a fraction; {datatype} has whole numbers")
    return [int(element) for element in elements]


def _floats(datatype: str, dtype: np.dtype[Any], elements: list[Any]) -> NDArray[Any]:
    try:
        with np.errstate(over="ignore"):
            array = np.array(elements, np.float64).astype(dtype)
    except OverflowError:  # of an integer that no float is as large as
        array = np.array([np.inf])
    if not np.isfinite(array).all():
        raise TensorError(
            f"holds numbers out of range; {datatype} reaches {np.finfo(dtype).max:.4g}"
        )
    return array


def _word(value: Any) -> str:
    words = {
        bool: "a boolean",
        str: "a text",
        dict: "an object",
        list: "a list",
        type(None): "null",
    }
    return words.get(type(value), "a number")


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor as a model declares it. shape: -1 is any size; the first counts rows."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def check(self, datatype: Any, shape: tuple[int, ...]) -> None:
        """Raises TensorError where such a tensor isn't this one."""
        if datatype != self.datatype:
            raise TensorError(f"is of {repr(datatype)[:_SHOWN]}, not {self.datatype}")
        fits = len(shape) == len(self.shape) and all(
            want in (-1, size) for want, size in zip(self.shape, shape, strict=True)
        )
        if not fits:
            raise TensorError(f"has the shape {list(shape)}, not {list(self.shape)}")

    def zeros(self, rows: int) -> Tensor:
        """One of that many rows, as small as it may be."""
        shape = (rows, *(max(1, size) for size in self.shape[1:]))
        size = _LENGTH_BYTES if self.datatype == BYTES else DTYPES[self.datatype].itemsize
        return Tensor(self.datatype, shape, bytes(math.prod(shape) * size))


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and gives. most_rows: of one request; 0: as many as it likes."""

    inputs: Mapping[str, Spec]
    outputs: Mapping[str, Spec]
    most_rows: int = 0

    def input(self, name: Any) -> Spec:
        return _named(name, self.inputs, "input")

    def output(self, name: Any) -> Spec:
        return _named(name, self.outputs, "output")

    def complete(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """The rows of a request with inputs of these shapes, each checked already. Raises Wrong
        where one is missing, or they are not alike."""
        if missing := [name for name in self.inputs if name not in shapes]:
            raise TensorError(
                f"inputs: {', '.join(missing)} missing; the model takes all it declares"
            )
        rows = {name: shape[0] for name, shape in shapes.items()}
        count = next(iter(rows.values()))
        if any(other != count for other in rows.values()):
            raise TensorError(f"inputs: all must have as many rows, not {rows}")
        if count < 1:
            raise TensorError("inputs: the first dimension counts rows; there must be one at least")
        if self.most_rows and count > self.most_rows:
            raise TensorError(
                f"inputs: {count} rows; the model takes {self.most_rows} at a time: send several "
                "requests, they share launches"
            )
        return count


def _named(name: Any, specs: Mapping[str, Spec], what: str) -> Spec:
    if not isinstance(name, str) or name not in specs:
        shown = repr(name)[:_SHOWN] if isinstance(name, str) else _word(name)
        raise TensorError(f"no {what} {shown}; there are: {', '.join(specs)}")
    return specs[name]


def specs(declared: Iterable[Mapping[str, Any]]) -> dict[str, Spec]:
    """What `options.inputs` or `options.outputs` say."""
    return {
        entry["name"]: Spec(entry["name"], entry["datatype"], tuple(entry["shape"]))
        for entry in declared
    }


@dataclass(frozen=True, slots=True)
class TensorRequest:
    """An input, read. outputs: those that are wanted; plain: they are wanted as JSON's own."""

    tensors: Mapping[str, Tensor]
    outputs: Sequence[str]
    rows: int
    plain: bool


def read(value: Any, takes: Signature) -> TensorRequest:
    """An input as the module says. Raises TensorError with where and what."""
    if not isinstance(value, dict) or not isinstance(value.get("inputs"), dict):
        raise TensorError('the input must be {"inputs": {name: {"datatype", "shape", "data"}}}')
    if unknown := value.keys() - _KEYS:
        raise TensorError(f"unknown key {repr(min(unknown))[:_SHOWN]}; there are: inputs, outputs")
    tensors = {name: _read(name, entry, takes) for name, entry in value["inputs"].items()}
    rows = takes.complete({name: tensor.shape for name, tensor in tensors.items()})
    wanted = value.get("outputs", list(takes.outputs))
    if not isinstance(wanted, list) or not wanted:
        raise TensorError("outputs must be a list of names, of one at least; or absent, for all")
    for name in wanted:
        takes.output(name)
    plain = not any("base64" in entry for entry in value["inputs"].values())
    return TensorRequest(tensors, wanted, rows, plain)


def _read(name: str, entry: Any, takes: Signature) -> Tensor:
    spec = takes.input(name)
    try:
        if not isinstance(entry, dict) or ("data" in entry) == ("base64" in entry):
            raise TensorError("must have datatype, shape, and either data or base64")
        shape = shape_of(entry.get("shape"))
        spec.check(entry.get("datatype"), shape)
        if "data" in entry:
            return Tensor.from_data(spec.datatype, shape, entry["data"])
        return Tensor.from_bytes(spec.datatype, shape, _decoded(entry["base64"]))
    except TensorError as wrong:
        raise TensorError(f"{name}: {wrong}") from None


def _decoded(text: Any) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (ValueError, TypeError) as error:
        raise TensorError(f"base64 can't be read: {error}") from None


def output(value: Mapping[str, Any]) -> Tensor:
    """A tensor that a worker wrote."""
    shape = tuple(value["shape"])
    if "data" in value:
        return Tensor.from_data(value["datatype"], shape, value["data"])
    return Tensor(value["datatype"], shape, binascii.a2b_base64(value["base64"]))


def rows(value: Any, *_: Mapping[str, Any]) -> int:
    """Of an input that was checked."""
    first = next(iter(value["inputs"].values()))
    count: int = first["shape"][0]
    return count


def problems_of(options: Mapping[str, Any]) -> list[str]:
    """What is wrong with the signature that a model's options declare."""
    problems = []
    for side in ("inputs", "outputs"):
        declared = options.get(side)
        if not isinstance(declared, list) or not declared:
            problems.append(f"options.{side} must be a list of {{ name, datatype, shape }}")
            continue
        problems += [
            f"options.{side} number {n}: {problem}"
            for n, entry in enumerate(declared, start=1)
            if (problem := _problem_of(entry))
        ]
        names = [entry.get("name") for entry in declared if isinstance(entry, dict)]
        problems += [
            f"options.{side} declares {name!r} twice"
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        ]
    return problems


def _problem_of(entry: Any) -> str | None:
    if not isinstance(entry, dict) or entry.keys() != {"name", "datatype", "shape"}:
        return "must have name, datatype and shape, and nothing else"
    if not isinstance(entry["name"], str) or not entry["name"]:
        return "name must be a string"
    if entry["datatype"] not in tuple(DTYPES):
        return f"no datatype {entry['datatype']!r}; there are: {', '.join(DTYPES)}"
    shape = entry["shape"]
    whole = isinstance(shape, list) and all(type(size) is int for size in shape)
    if not whole or shape[:1] != [-1] or not all(-1 <= size <= _MOST and size for size in shape):
        return "shape must be whole numbers, -1 for any size, and begin with -1: the rows"
    return None if len(shape) <= MAX_RANK else f"shape has more than {MAX_RANK} dimensions"
