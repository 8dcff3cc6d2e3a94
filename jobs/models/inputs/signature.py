"""Signatures: the tensors that a model declares, and the check of a request against them.

A request is {"inputs": {name: tensor, …}, "outputs": [the names wanted]}. The first dimension of
every tensor counts rows; the rows of one request stay together in a launch.
"""

import binascii
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from jobs.models.inputs.tensors import (
    BYTES,
    DTYPES,
    LENGTH_BYTES,
    MAX_RANK,
    MAX_SIZE,
    SHOWN,
    Tensor,
    TensorError,
    item_bytes,
    shape_of,
    type_name,
)
from jobs.problems import fits

_KEYS = frozenset({"inputs", "outputs"})
_SHAPE = f"a list of at most {MAX_RANK} whole numbers, -1 for any size, and begin with -1: the rows"


def _declared_shape(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, list | tuple) and len(shape) <= MAX_RANK:
        sizes = tuple(shape)
        whole = all(type(size) is int and -1 <= size <= MAX_SIZE and size for size in sizes)
        if whole and sizes[:1] == (-1,):
            return sizes
    raise ValueError(f"must be {_SHAPE}")


@dataclass(frozen=True, slots=True)
class Spec:
    """A tensor as a model declares it."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    datatype: Annotated[str, fits(DTYPES.__contains__, f"a datatype: {', '.join(DTYPES)}")]
    #: -1 is any size; the first dimension counts rows
    shape: Annotated[tuple[int, ...], BeforeValidator(_declared_shape), Field(description=_SHAPE)]

    def check(self, datatype: Any, shape: tuple[int, ...]) -> None:
        """Raises TensorError for a tensor of another datatype or shape."""
        if datatype != self.datatype:
            shown = repr(datatype) if isinstance(datatype, str) else type(datatype).__name__
            raise TensorError(f"is of {shown[:SHOWN]}, not {self.datatype}")
        fits = len(shape) == len(self.shape) and all(
            want in (-1, size) for want, size in zip(self.shape, shape, strict=True)
        )
        if not fits:
            raise TensorError(f"has the shape {list(shape)}, not {list(self.shape)}")

    def zeros(self, rows: int) -> Tensor:
        """Returns the smallest tensor with this many rows, all zeros."""
        shape = (rows, *(max(1, size) for size in self.shape[1:]))
        size = LENGTH_BYTES if self.datatype == BYTES else item_bytes(self.datatype)
        return Tensor(self.datatype, shape, bytes(math.prod(shape) * size))


@dataclass(frozen=True, slots=True)
class Signature:
    """Tensors that a model takes and gives."""

    inputs: Mapping[str, Spec]
    outputs: Mapping[str, Spec]
    most_rows: int = 0  #: of one request; 0: no bound

    def input(self, name: Any) -> Spec:
        """Returns an input by its name. Raises TensorError."""
        return _named(name, self.inputs, "input")

    def output(self, name: Any) -> Spec:
        """Returns an output by its name. Raises TensorError."""
        return _named(name, self.outputs, "output")

    def complete(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Returns the rows of a request with inputs of these shapes, each checked already.

        Raises TensorError where an input is missing, or their rows differ.
        """
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
        shown = repr(name)[:SHOWN] if isinstance(name, str) else type_name(name)
        raise TensorError(f"no {what} {shown}; there are: {', '.join(specs)}")
    return specs[name]


def specs(declared: Iterable[Mapping[str, Any]]) -> dict[str, Spec]:
    """Returns the tensors of `options.inputs` or `options.outputs`, by name."""
    return {
        entry["name"]: Spec(entry["name"], entry["datatype"], tuple(entry["shape"]))
        for entry in declared
    }


@dataclass(frozen=True, slots=True)
class TensorRequest:
    """An input of a model, checked."""

    tensors: Mapping[str, Tensor]
    outputs: Sequence[str]  #: names of those that are wanted
    rows: int
    plain: bool  #: outputs are wanted as JSON values, not as base64


def read(value: Any, takes: Signature) -> TensorRequest:
    """Reads an input as the module describes it. Raises TensorError with place and reason."""
    if not isinstance(value, dict) or not isinstance(value.get("inputs"), dict):
        raise TensorError('the input must be {"inputs": {name: {"datatype", "shape", "data"}}}')
    if unknown := value.keys() - _KEYS:
        raise TensorError(f"unknown key {repr(min(unknown))[:SHOWN]}; there are: inputs, outputs")
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
    except TensorError as error:
        raise TensorError(f"{name}: {error}") from None


def _decoded(text: Any) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (ValueError, TypeError) as error:
        raise TensorError(f"base64 can't be read: {error}") from None


def rows(value: Any, *_: Mapping[str, Any]) -> int:
    """Returns the rows of an input that was checked."""
    first = next(iter(value["inputs"].values()))
    count: int = first["shape"][0]
    return count
