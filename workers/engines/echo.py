"""Engine `echo`: returns its inputs; its cost is the cost of the platform itself."""

from collections.abc import Sequence
from typing import Any

from jobs.models.inputs.input_size import characters
from workers.engines.protocol import Engine, Params, Prepared, PreparedInputs


class Echo(Engine):
    """Outputs are the inputs: any JSON value."""

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Prepares inputs, as `Engine.prepare`."""
        return [Prepared(characters(value), value) for value in inputs]

    def run(self, batch: Sequence[Any], params: Params) -> Sequence[Any]:
        """Returns the batch."""
        return batch

    def samples(self) -> Sequence[Any]:
        """Returns sample inputs."""
        return ["warm"]
