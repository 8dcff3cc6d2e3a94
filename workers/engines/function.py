"""Engine `function`: serves any `def f(inputs: list[str]) -> list[str]` as it is."""

from collections.abc import Callable, Sequence
from typing import Any

from jobs.models.inputs.input_size import characters
from workers.engines.common.user_code import import_attribute
from workers.engines.protocol import Engine, InvalidInput, Params, Prepared, PreparedInputs


class FunctionCallEngine(Engine):
    """Calls the function with each launch, as a list.

    `samples` are inputs to warm up with; `text_only` refuses inputs other than strings.
    """

    def __init__(
        self, function: Callable[[list[Any]], Any], samples: Sequence[Any], *, text_only: bool
    ) -> None:
        self._function, self._samples, self._text_only = function, samples, text_only

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Prepares inputs, as `Engine.prepare`."""
        return [
            InvalidInput("the input must be a string")
            if self._text_only and not isinstance(value, str)
            else Prepared(characters(value), value)
            for value in inputs
        ]

    def run(self, batch: Sequence[Any], params: Params) -> Sequence[Any]:
        """Runs a launch, as `Engine.run`."""
        outputs: Sequence[Any] = self._function(list(batch))
        return outputs

    def samples(self) -> Sequence[Any]:
        """Returns sample inputs."""
        return self._samples


class FunctionEngine(FunctionCallEngine):
    """Calls `function` ("package.module:name") with each launch; `samples` are texts to warm up
    with. Raises ValueError where it can't be imported."""

    def __init__(self, function: str, samples: Sequence[str] = ()) -> None:
        super().__init__(import_attribute("function", function), samples, text_only=True)
