"""Torch module as a function of named arrays, on any device."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module as TorchModule

from workers.engines.common import device as devices
from workers.engines.common.device import Send


class Module:
    """Calls `module` with the inputs in their declared order. It returns a tensor, a tuple or list
    of them in the order of the outputs, or a dict by their names."""

    def __init__(
        self, module: TorchModule, inputs: Sequence[str], outputs: Sequence[str], device: str | None
    ) -> None:
        self._device = devices.choose(device)
        self._module = module.to(self._device.place).eval()
        self._inputs, self._outputs = inputs, outputs

    def __call__(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Returns the outputs by name. Raises ValueError for another number of outputs."""

        def _forward(send: Send) -> list[Tensor]:
            return self._in_order(self._module(*(send(arrays[name]) for name in self._inputs)))

        return dict(zip(self._outputs, self._device.run_all(_forward), strict=True))

    def _in_order(self, outputs: Any) -> list[Tensor]:
        if isinstance(outputs, Tensor):
            outputs = [outputs]
        if isinstance(outputs, Mapping):
            return [outputs[name] for name in self._outputs]
        if len(outputs) != len(self._outputs):
            raise ValueError(f"the module gave {len(outputs)} outputs for {len(self._outputs)}")
        return list(outputs)

    def memory_mb(self) -> float:
        """Returns the size of the weights, MiB."""
        return devices.weights_mb(self._module)

    def close(self) -> None:
        """Frees the weights."""
        del self._module
        self._device.release()
