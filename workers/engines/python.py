"""Engine `python`: a file or module with `predict(batch)` and optional hooks.

load()            called once; returns the model
predict(batch)    or predict(model, batch): returns a list with one output for each input
prepare(input)    returns an input as `predict` gets it; off the device; raising refuses it
SAMPLES           inputs to warm up and to measure with
probe()           or probe(model): checks a known answer; raising takes the worker out of service
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from workers.engines.common.user_code import Faulty, Source, positional
from workers.engines.function import FunctionCallEngine
from workers.engines.protocol import (
    DeviceFailed,
    InvalidInput,
    Params,
    Permanent,
    Prepared,
    PreparedInputs,
)


class PythonPreparation(FunctionCallEngine):
    """Code of the operator, of which `prepare` and SAMPLES alone are used: nothing is loaded.
    `text_only` refuses inputs other than strings; `code` is passed to `Source`."""

    def __init__(self, *, text_only: bool = False, **code: str) -> None:
        self._source = Source(**code)
        self._prepare = self._source.find("prepare")
        super().__init__(list, _samples(self._source), text_only=text_only)

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Prepares inputs; sizes are those of the original inputs, as the api sizes calls without
        this code."""
        prepared = super().prepare(inputs, params)
        if self._prepare is None:
            return prepared
        return [self._own(one) if isinstance(one, Prepared) else one for one in prepared]

    def close(self) -> None:
        """Forgets the code."""
        self._source.forget()

    def _own(self, prepared: Prepared) -> Prepared | InvalidInput:
        assert self._prepare is not None
        try:
            return replace(prepared, data=self._source.call(self._prepare, prepared.data))
        except Exception as error:
            return InvalidInput(str(error))


class PythonCode(PythonPreparation):
    """Code of the operator, with its model; options as those of `PythonPreparation`."""

    def __init__(self, *, text_only: bool = False, **code: str) -> None:
        super().__init__(text_only=text_only, **code)
        predict = self._source.need("predict")
        load = self._source.find("load")
        model = self._source.call(load) if load else None
        probe = self._source.find("probe")
        self._probe = probe and partial(probe, *[model][: positional(probe)])
        self._function = _bound(predict, model)

    def run(self, batch: Sequence[Any], params: Params) -> Sequence[Any]:
        """Calls predict. Raises Permanent where it returns no list."""
        outputs = self._source.call(self._function, list(batch))
        if not isinstance(outputs, list | tuple | np.ndarray):
            kind = type(outputs).__name__
            raise Permanent(f"predict must return a list, one output for each input, not {kind}")
        return list(outputs)

    def probe(self) -> None:
        """Calls probe. Raises DeviceFailed where it raises."""
        try:
            if self._probe:
                self._source.call(self._probe)
        except Exception as error:
            raise DeviceFailed(f"probe: {error}") from None

    def close(self) -> None:
        """Forgets the code and its model."""
        del self._function, self._probe
        super().close()


def _bound(predict: Callable[..., Any], model: Any) -> Callable[[list[Any]], Any]:
    """Returns predict as a function of the batch alone."""
    takes = positional(predict)
    if takes not in (1, 2):
        raise Faulty(f"predict takes {takes} arguments; it must be (batch) or (model, batch)")
    return partial(predict, model) if takes == 2 else predict


def _samples(source: Source) -> Sequence[Any]:
    samples = getattr(source.module, "SAMPLES", [])
    if not isinstance(samples, list | tuple):
        raise Faulty("SAMPLES must be a list of inputs")
    return samples
