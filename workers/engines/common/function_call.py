"""Engine shared by `function` and `python`: one function over the inputs of a launch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobs.models.inputs.input_size import characters
from workers.engines.protocol import InvalidInput, Prepared


class FunctionCallEngine:
    """Calls the function with each launch, as a list.

    `samples` are inputs to warm up with; `text_only` refuses inputs other than strings.
    """

    def __init__(
        self, function: Callable[[list[Any]], Any], samples: Sequence[Any], *, text_only: bool
    ) -> None:
        self._function, self._samples, self._text_only = function, samples, text_only

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        """Prepares inputs, as `Engine.prepare`."""
        return [
            InvalidInput("the input must be a string")
            if self._text_only and not isinstance(value, str)
            else Prepared(characters(value), value)
            for value in inputs
        ]

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        """Runs a launch, as `Engine.run`."""
        outputs: Sequence[Any] = self._function(list(batch))
        return outputs

    def samples(self) -> Sequence[Any]:
        """Returns sample inputs."""
        return self._samples

    def memory_mb(self) -> float:
        """Returns 0."""
        return 0.0

    def close(self) -> None:
        """Does nothing."""
