"""`function`: serves any `def f(inputs: list[str]) -> list[str]`, as it is."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from jobs.sizes import characters
from workers.engines.protocol import InvalidInput, Prepared


class FunctionEngine:
    """Calls the function that `function` names ("package.module:name") with each launch.

    samples: texts that it may be called with before it serves, to learn what its launches take.
    """

    def __init__(self, function: str, samples: Sequence[str] = ()) -> None:
        self._samples = samples
        module, _, name = function.partition(":")
        try:
            self._function: Callable[[list[str]], list[str]] = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            message = f"options.function is {function!r}, which can't be imported: {error}"
            raise ValueError(message) from error

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        return [
            Prepared(characters(value), value)
            if isinstance(value, str)
            else InvalidInput("the input must be a string")
            for value in inputs
        ]

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        return self._function(list(batch))

    def samples(self) -> Sequence[Any]:
        return self._samples

    def memory_mb(self) -> float:
        return 0.0

    def close(self) -> None:
        pass
