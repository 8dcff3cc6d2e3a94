"""Engine `tensors`: serves a function of numpy arrays, or a torch module, by named tensors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jobs.models.inputs import signature
from jobs.models.inputs.signature import Signature, Spec, TensorRequest
from jobs.models.inputs.tensors import NamedTensors, Tensor, TensorError
from workers.engines.common.grouping import indexes_by
from workers.engines.common.user_code import import_attribute
from workers.engines.protocol import Engine, InvalidInput, Params, Prepared, PreparedInputs

if TYPE_CHECKING:
    from workers.engines.common.modules import Module

Arrays = Mapping[str, NDArray[Any]]
_SAMPLES = (1, 4)  # rows


@dataclass(frozen=True, slots=True)
class _Entry:
    """One request and its arrays."""

    request: TensorRequest
    arrays: Arrays

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of one row: only requests with equal ones can be joined."""
        return tuple(array.shape[1:] for array in self.arrays.values())


class TensorEngine(Engine):
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
        self._module: Module | None = None
        if function:
            self._function: Callable[[Arrays], Arrays] = import_attribute("function", function)
        else:
            from workers.engines.common import modules  # loads torch

            made = import_attribute("module", module)(**(arguments or {}))
            names = list(self._signature.inputs), list(self._signature.outputs)
            self._function = self._module = modules.Module(made, *names, device)

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Prepares inputs, as `Engine.prepare`."""
        return [self._prepared(value) for value in inputs]

    def _prepared(self, value: Any) -> Prepared | InvalidInput:
        try:
            request = signature.read(value, self._signature)
        except TensorError as error:
            return InvalidInput(str(error))
        arrays = {name: request.tensors[name].array() for name in self._signature.inputs}
        return Prepared(request.rows, _Entry(request, arrays))

    def run(self, batch: Sequence[_Entry], params: Params) -> list[NamedTensors]:
        """Runs all requests; returns the wanted outputs of each, with its own rows."""
        outputs: dict[int, NamedTensors] = {}
        for indexes in indexes_by([entry.shapes for entry in batch]):
            joined = self._run_joined([batch[index] for index in indexes])
            outputs |= zip(indexes, joined, strict=True)
        return [outputs[index] for index in range(len(batch))]

    def _run_joined(self, entries: Sequence[_Entry]) -> Iterator[NamedTensors]:
        """Runs requests whose rows have equal shapes as one."""
        joined = {
            name: np.concatenate([entry.arrays[name] for entry in entries])
            for name in self._signature.inputs
        }
        stops = np.cumsum([entry.request.rows for entry in entries]).tolist()
        outputs = self._function(joined)
        whole = {
            name: _checked(spec, outputs, stops[-1])
            for name, spec in self._signature.outputs.items()
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
        return self._module.memory_mb() if self._module else 0.0

    def close(self) -> None:
        """Frees the weights."""
        if self._module:
            self._module.close()


def _checked(spec: Spec, outputs: Arrays, rows: int) -> NDArray[Any]:
    """Returns the output of that name. Raises ValueError where it isn't as declared."""
    if not isinstance(outputs, Mapping) or spec.name not in outputs:
        raise ValueError(f"the model gave no output {spec.name!r}, which it declares")
    array = np.asarray(outputs[spec.name])
    try:
        spec.check(spec.datatype, array.shape)
        Tensor.from_array(spec.datatype, array[:0])  # raises if it is of another type
    except TensorError as error:
        raise ValueError(f"the output {spec.name} {error}") from None
    if len(array) != rows:
        raise ValueError(f"the output {spec.name} has {len(array)} rows for {rows} of input")
    return array
