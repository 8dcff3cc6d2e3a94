"""From inputs to entries: checked, prepared by the engine, and assigned to their lanes."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs import clock
from jobs.calls.lanes import bucket_of, lane_name
from jobs.intake import validation
from jobs.models.model import Model
from workers.engines.protocol import Engine, InvalidInput, Prepared
from workers.scheduler.entries import Entry


def prepare(
    model: Model, engine: Engine, inputs: Sequence[Any], params: Mapping[str, Any]
) -> list[Entry | InvalidInput]:
    """An entry for each input (its owner and seq still to be set), or why the model refuses it."""
    now_s = clock.monotonic()
    prepared_all = _prepared(model, engine, inputs, params)
    took_s = clock.monotonic() - now_s
    lanes: dict[int, str] = {}
    made: list[Entry | InvalidInput] = []
    for prepared in prepared_all:
        if isinstance(prepared, InvalidInput):
            made.append(prepared)
            continue
        bucket = bucket_of(prepared.size, model.buckets)
        lane = lanes.get(bucket) or lanes.setdefault(bucket, lane_name(params, bucket))
        size, data = prepared.size, prepared.data
        made.append(Entry(None, 0, lane, bucket, size, data, now_s, prepare_s=took_s))
    return made


def _prepared(
    model: Model, engine: Engine, inputs: Sequence[Any], params: Mapping[str, Any]
) -> list[Prepared | InvalidInput]:
    refused = [validation.refuse_input(model, value) for value in inputs]
    if not any(refused):
        return _by_engine(engine, inputs, params)
    return [
        InvalidInput(no[1]) if no else _by_engine(engine, [value], params)[0]
        for value, no in zip(inputs, refused, strict=True)
    ]


def _by_engine(
    engine: Engine, inputs: Sequence[Any], params: Mapping[str, Any]
) -> list[Prepared | InvalidInput]:
    """What the engine makes of them; one that it stumbles over is refused alone."""
    try:
        prepared = engine.prepare(inputs, params)
        if len(prepared) != len(inputs):
            raise ValueError(f"{len(prepared)} answers for {len(inputs)} inputs")
        return prepared
    except (Exception, SystemExit) as error:
        if len(inputs) == 1:
            return [InvalidInput(f"{type(error).__name__}: {error}")]
        return [_by_engine(engine, [value], params)[0] for value in inputs]
