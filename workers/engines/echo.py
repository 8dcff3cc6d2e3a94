"""Engine `echo`: returns its inputs; its cost is the cost of the platform itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.models.inputs.input_size import characters
from workers.engines.protocol import InvalidInput, Prepared


class Echo:
    """Outputs are the inputs: any JSON value."""

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        """Prepares inputs, as `Engine.prepare`."""
        return [Prepared(characters(value), value) for value in inputs]

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        """Returns the batch."""
        return batch

    def samples(self) -> Sequence[Any]:
        """Returns sample inputs."""
        return ["warm"]

    def memory_mb(self) -> float:
        """Returns 0."""
        return 0.0

    def close(self) -> None:
        """Does nothing."""
