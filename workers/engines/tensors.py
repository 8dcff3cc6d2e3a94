"""`tensors`: serves a function of numpy arrays, or a torch module, by named inputs and outputs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from jobs.models.inputs import signature
from jobs.models.inputs.signature import Signature, Spec, TensorRequest
from jobs.models.inputs.tensors import NamedTensors, Tensor, TensorError
from workers.engines.protocol import InvalidInput, Prepared

Arrays = Mapping[str, NDArray[Any]]
_SAMPLES = (1, 4)  # rows


class Runs(Protocol):
    """Whatever turns arrays into arrays, by their names."""

    def __call__(self, arrays: Arrays) -> Arrays: ...

    def memory_mb(self) -> float: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Entry:
    """One request: its arrays, and what is wanted of it."""

    asked: TensorRequest
    arrays: Arrays

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of one row: only those that are alike can be joined."""
        return tuple(array.shape[1:] for array in self.arrays.values())


class TensorEngine:
    """Joins the rows of all requests of a launch, runs them as one, and takes them apart again.

    inputs, outputs: what is declared, each {name, datatype, shape}. function: "package.module:name"
    of one that takes a dict of arrays [rows, …] and returns such a dict; or module: of a torch
    module's class, made with `arguments` on `device` (`Module` says how it is called). max_rows: of
    one request; 0: no bound.
    """

    def __init__(
        self,
        inputs: Sequence[Mapping[str, Any]],
        outputs: Sequence[Mapping[str, Any]],
        function: str = "",
        module: str = "",
        arguments: Mapping[str, Any] | None = None,
        device: str | None = None,
        max_rows: int = 0,
    ) -> None:
        if bool(function) == bool(module):
            raise ValueError("options must have a function or a module, and not both")
        self._takes = Signature(signature.specs(inputs), signature.specs(outputs), max_rows)
        self._runs: Runs
        if function:
            self._runs = _Function(_imported("function", function))
        else:
            from workers.engines.common.modules import Module

            made = _imported("module", module)(**(arguments or {}))
            self._runs = Module(made, list(self._takes.inputs), list(self._takes.outputs), device)

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        return [self._prepared(value) for value in inputs]

    def _prepared(self, value: Any) -> Prepared | InvalidInput:
        try:
            asked = signature.read(value, self._takes)
        except TensorError as wrong:
            return InvalidInput(str(wrong))
        arrays = {name: asked.tensors[name].array() for name in self._takes.inputs}
        return Prepared(asked.rows, _Entry(asked, arrays))

    def run(self, batch: Sequence[_Entry], params: Mapping[str, Any]) -> list[NamedTensors]:
        """The wanted outputs of each, with its own rows."""
        alike: dict[Any, list[int]] = {}
        for place, entry in enumerate(batch):
            alike.setdefault(entry.shapes, []).append(place)
        found: dict[int, NamedTensors] = {}
        for places in alike.values():
            outputs = self._together([batch[place] for place in places])
            found |= zip(places, outputs, strict=True)
        return [found[place] for place in range(len(batch))]

    def _together(self, entries: Sequence[_Entry]) -> Iterator[NamedTensors]:
        """Entries whose rows are alike, as one."""
        joined = {
            name: np.concatenate([entry.arrays[name] for entry in entries])
            for name in self._takes.inputs
        }
        stops = np.cumsum([entry.asked.rows for entry in entries]).tolist()
        found = self._runs(joined)
        whole = {
            name: _checked(spec, found, stops[-1]) for name, spec in self._takes.outputs.items()
        }
        for start, entry in zip([0, *stops], entries, strict=False):
            asked, own = entry.asked, slice(start, start + entry.asked.rows)
            tensor = Tensor.from_array
            yield NamedTensors(
                (
                    (n, tensor(self._takes.outputs[n].datatype, whole[n][own]))
                    for n in asked.outputs
                ),
                plain=asked.plain,
            )

    def samples(self) -> list[dict[str, Any]]:
        """Zeros, of some rows."""
        counts = (n for n in _SAMPLES if not self._takes.most_rows or n <= self._takes.most_rows)
        return [
            {"inputs": {name: spec.zeros(n).as_json() for name, spec in self._takes.inputs.items()}}
            for n in counts
        ]

    def memory_mb(self) -> float:
        return self._runs.memory_mb()

    def close(self) -> None:
        self._runs.close()


class _Function:
    """A function that holds nothing on a device."""

    def __init__(self, function: Callable[[Arrays], Arrays]) -> None:
        self._function = function

    def __call__(self, arrays: Arrays) -> Arrays:
        return self._function(arrays)

    def memory_mb(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


def _imported(option: str, name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        found: Callable[..., Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        message = f"options.{option} is {name!r}, which can't be imported: {error}"
        raise ValueError(message) from error
    return found


def _checked(spec: Spec, found: Arrays, rows: int) -> NDArray[Any]:
    """The output of that name, where it is as declared. Raises ValueError."""
    if not isinstance(found, Mapping) or spec.name not in found:
        raise ValueError(f"the model gave no output {spec.name!r}, which it declares")
    array = np.asarray(found[spec.name])
    try:
        spec.check(spec.datatype, array.shape)
        Tensor.from_array(spec.datatype, array[:0])  # whether it is of that type
    except TensorError as wrong:
        raise ValueError(f"the output {spec.name} {wrong}") from None
    if len(array) != rows:
        raise ValueError(f"the output {spec.name} has {len(array)} rows for {rows} of input")
    return array
