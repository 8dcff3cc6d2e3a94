"""Running one launch: what an engine raises is narrowed down until the guilty stand alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from workers.engines.protocol import Engine
from workers.recorder import WrongNumberOfOutputs


def run(engine: Engine, batch: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
    """The outputs of a launch, in order; in place of each that failed alone, its exception."""
    try:
        outputs = list(engine.run(batch, params))
        if len(outputs) != len(batch):
            raise WrongNumberOfOutputs(f"{len(outputs)} outputs for {len(batch)} inputs")
    except (Exception, SystemExit) as error:
        if len(batch) == 1:
            return [error]
        half = len(batch) // 2
        return run(engine, batch[:half], params) + run(engine, batch[half:], params)
    return outputs
