"""What `function` and `python` share: one function over the inputs of a launch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobs.models.inputs.input_size import characters
from workers.engines.protocol import InvalidInput, Prepared


class FunctionCallEngine:
    """Calls the function with each launch, as a list.

    samples: inputs that it may be called with before it serves, to learn what its launches take.
    text_only: whether anything but a string is refused.
    """

    def __init__(
        self, function: Callable[[list[Any]], Any], samples: Sequence[Any], *, text_only: bool
    ) -> None:
        self._function, self._samples, self._text_only = function, samples, text_only

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        return [
            InvalidInput("the input must be a string")
            if self._text_only and not isinstance(value, str)
            else Prepared(characters(value), value)
            for value in inputs
        ]

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        outputs: Sequence[Any] = self._function(list(batch))
        return outputs

    def samples(self) -> Sequence[Any]:
        return self._samples

    def memory_mb(self) -> float:
        return 0.0

    def close(self) -> None:
        pass
