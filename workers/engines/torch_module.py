"""Engine `torch`: a network that takes one tensor an item, built by Python code or exported."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.engines.common import device as devices
from workers.engines.common.device import Send
from workers.engines.common.grouping import indexes_by
from workers.engines.common.networks import Shape, built, exported
from workers.engines.common.user_code import Faulty, Source
from workers.engines.protocol import (
    Engine,
    InvalidInput,
    Params,
    Permanent,
    Prepared,
    PreparedInputs,
)

Array = NDArray[Any]


class TorchModule(Engine):
    """Inputs are numbers or nested lists of them; outputs are rows of what the network returns.

    `file`, `module` and `file_sha256` name the code; `build` and `arguments` create the network
    from it, `weights` and `sha256` its weights. `export` and `export_sha256` name an exported
    archive instead. `dtype` and `shape` are those of an input; -1 stands for any length. `autocast`
    is "bfloat16" or "float16", in which products and convolutions are computed; "": as the network
    is. `samples` are inputs to warm up with, `threads` torch's intra-op threads; None leaves them.

    The code's preprocess(input) makes an input's tensor, and its postprocess(output) gets an item's
    output as an array, where it has them. Raises Faulty.
    """

    def __init__(
        self,
        *,
        build: str = "",
        arguments: Mapping[str, Any] | None = None,
        export: str = "",
        export_sha256: str = "",
        weights: str = "",
        sha256: str = "",
        dtype: str = "",
        shape: Sequence[int] | None = None,
        autocast: str = "",
        samples: Sequence[Any] = (),
        device: str | None = None,
        threads: int | None = None,
        **code: str,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self._device, self._autocast = devices.choose(device), autocast
        place = self._device.place
        self._source = Source(**code) if code else None
        if export:
            self._network = exported(place, export, export_sha256, weights, sha256)
        elif self._source:
            self._network = built(place, self._source, build, arguments or {}, weights, sha256)
        else:
            raise Faulty("options takes one of file, module, export; there is none")
        self._dtype = np.dtype(dtype or _name(self._network.dtype) or "float32")
        self._shape = self._network.shape if shape is None else _shape(shape)
        self._before, self._after = self._hook("preprocess"), self._hook("postprocess")
        self._samples = samples or self._zeros()
        self._device.release()

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Prepares inputs, as `Engine.prepare`."""
        return [self._prepared(value) for value in inputs]

    def run(self, batch: Sequence[Array], params: Params) -> Sequence[Any]:
        """Runs a launch; arrays of one shape are stacked."""
        outputs: list[Any] = [None] * len(batch)
        for indexes in indexes_by([array.shape for array in batch]):
            stacked = np.stack([batch[index] for index in indexes])
            rows = self._device.run(partial(self._forward, stacked))
            for index, row in zip(indexes, rows, strict=True):
                outputs[index] = self._after(row) if self._after else row
        return outputs

    def samples(self) -> Sequence[Any]:
        """Returns sample inputs."""
        return self._samples

    def memory_mb(self) -> float:
        """Returns the size of the weights, MiB."""
        return devices.weights_mb(self._network.forward)

    def close(self) -> None:
        """Frees network and code."""
        del self._network, self._before, self._after
        if self._source:
            self._source.forget()
        self._device.release()

    def _hook(self, name: str) -> Callable[[Any], Any] | None:
        hook = self._source.find(name) if self._source else None
        return partial(self._source.call, hook) if self._source and hook else None

    def _zeros(self) -> Sequence[Any]:
        if self._shape is None or None in self._shape or self._before:
            return []
        return [np.zeros([n or 0 for n in self._shape], self._dtype).tolist()]

    def _prepared(self, value: Any) -> Prepared | InvalidInput:
        try:
            array = _array(self._before(value) if self._before else value, self._dtype)
        except Exception as error:
            return InvalidInput(str(error))
        if self._shape is not None and not _fits(array.shape, self._shape):
            wanted = [-1 if n is None else n for n in self._shape]
            return InvalidInput(f"the input has shape {list(array.shape)}, not {wanted}")
        return Prepared(1, array)

    def _forward(self, stacked: Array, send: Send) -> Tensor:
        with devices.autocast(self._autocast, self._device.place):
            output = self._network.forward(send(stacked))
        if not isinstance(output, Tensor) or output.dim() < 1 or len(output) != len(stacked):
            raise Permanent(
                f"the network returned {_shown(output)} for {len(stacked)} rows; "
                "it must return a tensor with a row for each"
            )
        return output.float() if output.dtype == torch.bfloat16 else output


def _array(value: Any, dtype: np.dtype[Any]) -> Array:
    """Converts a value. Raises ValueError where it is no tensor of that type."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError("the input's lists are not all of one length") from None
    if array.dtype.kind not in ("iu" if dtype.kind == "i" else "iuf"):
        numbers = "whole numbers" if dtype.kind == "i" else "numbers"
        raise ValueError(f"the input must be {numbers}, alone or in lists")
    with np.errstate(over="ignore"):
        made = array.astype(dtype)
    same = made == array if dtype.kind == "i" else np.isfinite(made)
    if not same.all():
        raise ValueError(f"the input holds a number that is no {dtype}")
    return made


def _fits(shape: tuple[int, ...], wanted: Shape) -> bool:
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(m is None or n == m for n, m in pairs)


def _shape(shape: Sequence[int]) -> Shape:
    return tuple(None if n < 0 else n for n in shape)


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.") if dtype else ""


def _shown(output: Any) -> str:
    return f"{list(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
