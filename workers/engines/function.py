"""Engine `function`: serves any `def f(inputs: list[str]) -> list[str]` as it is."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from workers.engines.common.function_call import FunctionCallEngine


class FunctionEngine(FunctionCallEngine):
    """Calls `function` ("package.module:name") with each launch; `samples` are texts to warm up
    with. Raises ValueError where it can't be imported."""

    def __init__(self, function: str, samples: Sequence[str] = ()) -> None:
        super().__init__(_imported(function), samples, text_only=True)


def _imported(function: str) -> Callable[[list[Any]], Any]:
    module, _, name = function.partition(":")
    try:
        imported: Callable[[list[Any]], Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        message = f"options.function is {function!r}, which can't be imported: {error}"
        raise ValueError(message) from error
    return imported
