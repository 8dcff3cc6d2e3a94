"""Engine `tensors`: serves a function of numpy arrays, or a torch module, by named tensors."""

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


class TensorCallable(Protocol):
    """Maps named arrays to named arrays."""

    def __call__(self, arrays: Arrays) -> Arrays:
        """Returns the outputs for inputs [rows, …]."""

    def memory_mb(self) -> float:
        """Returns the device memory of the weights, MiB."""

    def close(self) -> None:
        """Frees the weights."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One request and its arrays."""

    request: TensorRequest
    arrays: Arrays

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of one row: only requests with equal ones can be joined."""
        return tuple(array.shape[1:] for array in self.arrays.values())


class TensorEngine:
    """Joins the rows of all requests of a launch, runs them as one, and splits the outputs.

    `inputs` and `outputs` declare tensors, each {name, datatype, shape}. `function`
    ("package.module:name") takes a dict of arrays [rows, …] and returns such a dict; or `module`
    names a torch module's class, created with `arguments` on `device` and called as `Module` says.
    `max_rows` bounds the rows of one request; 0: no bound. Raises ValueError.
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
        self._signature = Signature(signature.specs(inputs), signature.specs(outputs), max_rows)
        self._callable: TensorCallable
        if function:
            self._callable = _Function(_imported("function", function))
        else:
            from workers.engines.common.modules import Module

            made = _imported("module", module)(**(arguments or {}))
            names = list(self._signature.inputs), list(self._signature.outputs)
            self._callable = Module(made, *names, device)

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        """Prepares inputs, as `Engine.prepare`."""
        return [self._prepared(value) for value in inputs]

    def _prepared(self, value: Any) -> Prepared | InvalidInput:
        try:
            request = signature.read(value, self._signature)
        except TensorError as error:
            return InvalidInput(str(error))
        arrays = {name: request.tensors[name].array() for name in self._signature.inputs}
        return Prepared(request.rows, _Entry(request, arrays))

    def run(self, batch: Sequence[_Entry], params: Mapping[str, Any]) -> list[NamedTensors]:
        """Runs all requests; returns the wanted outputs of each, with its own rows."""
        by_shapes: dict[Any, list[int]] = {}
        for place, entry in enumerate(batch):
            by_shapes.setdefault(entry.shapes, []).append(place)
        found: dict[int, NamedTensors] = {}
        for places in by_shapes.values():
            outputs = self._run_joined([batch[place] for place in places])
            found |= zip(places, outputs, strict=True)
        return [found[place] for place in range(len(batch))]

    def _run_joined(self, entries: Sequence[_Entry]) -> Iterator[NamedTensors]:
        """Runs requests whose rows have equal shapes as one."""
        joined = {
            name: np.concatenate([entry.arrays[name] for entry in entries])
            for name in self._signature.inputs
        }
        stops = np.cumsum([entry.request.rows for entry in entries]).tolist()
        found = self._callable(joined)
        whole = {
            name: _checked(spec, found, stops[-1]) for name, spec in self._signature.outputs.items()
        }
        for start, entry in zip([0, *stops], entries, strict=False):
            request, own = entry.request, slice(start, start + entry.request.rows)
            tensor = Tensor.from_array
            yield NamedTensors(
                (
                    (n, tensor(self._signature.outputs[n].datatype, whole[n][own]))
                    for n in request.outputs
                ),
                plain=request.plain,
            )

    def samples(self) -> list[dict[str, Any]]:
        """Returns requests of zeros."""
        most = self._signature.most_rows or max(_SAMPLES)
        inputs = self._signature.inputs.items()
        return [
            {"inputs": {name: spec.zeros(n).as_json() for name, spec in inputs}}
            for n in _SAMPLES
            if n <= most
        ]

    def memory_mb(self) -> float:
        """Returns the size of the weights, MiB."""
        return self._callable.memory_mb()

    def close(self) -> None:
        """Frees the weights."""
        self._callable.close()


class _Function:
    """Function that holds nothing on a device."""

    def __init__(self, function: Callable[[Arrays], Arrays]) -> None:
        self._function = function

    def __call__(self, arrays: Arrays) -> Arrays:
        return self._function(arrays)

    def memory_mb(self) -> float:
        """Returns 0."""
        return 0.0

    def close(self) -> None:
        """Does nothing."""


def _imported(option: str, name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        found: Callable[..., Any] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        message = f"options.{option} is {name!r}, which can't be imported: {error}"
        raise ValueError(message) from error
    return found


def _checked(spec: Spec, found: Arrays, rows: int) -> NDArray[Any]:
    """Returns the output of that name. Raises ValueError where it isn't as declared."""
    if not isinstance(found, Mapping) or spec.name not in found:
        raise ValueError(f"the model gave no output {spec.name!r}, which it declares")
    array = np.asarray(found[spec.name])
    try:
        spec.check(spec.datatype, array.shape)
        Tensor.from_array(spec.datatype, array[:0])  # whether it is of that type
    except TensorError as error:
        raise ValueError(f"the output {spec.name} {error}") from None
    if len(array) != rows:
        raise ValueError(f"the output {spec.name} has {len(array)} rows for {rows} of input")
    return array
