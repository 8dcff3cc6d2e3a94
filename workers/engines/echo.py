"""`echo`: gives back what it gets. What it takes to run it is what the platform itself takes."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.models.inputs.input_size import characters
from workers.engines.protocol import InvalidInput, Prepared


class Echo:
    """Outputs are the inputs: any JSON value."""

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        return [Prepared(characters(value), value) for value in inputs]

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        return batch

    def samples(self) -> Sequence[Any]:
        return ["warm"]

    def memory_mb(self) -> float:
        return 0.0

    def close(self) -> None:
        pass
