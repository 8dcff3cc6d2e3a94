"""Preparation as an engine: it launches inputs, and returns what the model's own engine launches
later. So batches, hangs, crashes and figures are those of any model."""

from collections.abc import Sequence
from typing import Any

from jobs.models.model import PreparationModel
from workers.engines import registry
from workers.engines.protocol import Engine, InvalidInput, Params, Prepared, PreparedInputs


class PreparationEngine(Engine):
    """Prepares the inputs of another model. Raises ValueError where nothing but its own engine can.

    `prepare` leaves an input as it is; `run` prepares a batch, and returns a Prepared or
    InvalidInput for each.
    """

    def __init__(self, model: PreparationModel) -> None:
        self._preparer = registry.load_preparer(model)

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Implements `Engine.prepare`: each input counts as one, whatever its size."""
        return [Prepared(1, value) for value in inputs]

    def run(self, batch: Sequence[Any], params: Params) -> Sequence[Prepared | InvalidInput]:
        """Implements `Engine.run`. Raises where nothing can be prepared: an input that is alone is
        refused for that."""
        try:
            prepared = self._preparer.prepare(batch, params)
            if len(prepared) != len(batch):
                raise ValueError(f"{len(prepared)} answers for {len(batch)} inputs")
            return prepared
        except (Exception, SystemExit) as error:
            if len(batch) == 1:
                return [InvalidInput(f"{type(error).__name__}: {error}")]
            raise

    def probe(self) -> None:
        """Implements `Engine.probe`: there is no device that may fail."""
        return

    def close(self) -> None:
        """Implements `Engine.close`."""
        self._preparer.close()

    def samples(self) -> Sequence[Any]:
        """Implements `Engine.samples`."""
        return self._preparer.samples()
