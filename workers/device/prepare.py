"""Inputs as entries: checked, prepared by the engine, and assigned to lanes."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs import clock
from jobs.calls.lanes import bucket_of, lane_name
from jobs.intake import validation
from jobs.models.model import Model
from workers.engines.protocol import Engine, InvalidInput, Prepared
from workers.items.in_flight import InFlightSlice, ItemOutcome, end_together
from workers.scheduler.entries import Entry


def prepare(
    model: Model, engine: Engine, inputs: Sequence[Any], params: Mapping[str, Any]
) -> list[Entry | InvalidInput]:
    """Returns one entry an input, without owner and seq, or why the model rejects it."""
    now_s = clock.monotonic()
    prepared_all = _prepare(model, engine, inputs, params)
    took_s = clock.monotonic() - now_s
    lanes, buckets = dict[int, str](), model.buckets
    bucket = 0
    entries: list[Entry | InvalidInput] = []
    for prepared in prepared_all:
        if isinstance(prepared, InvalidInput):
            entries.append(prepared)
            continue
        if buckets:
            bucket = bucket_of(prepared.size, buckets)
        lane = lanes.get(bucket) or lanes.setdefault(bucket, lane_name(params, bucket))
        entry = Entry(None, 0, lane, bucket, prepared.size, prepared.data, now_s, prepare_s=took_s)
        entry.truncated = prepared.truncated
        entries.append(entry)
    return entries


def _prepare(
    model: Model, engine: Engine, inputs: Sequence[Any], params: Mapping[str, Any]
) -> list[Prepared | InvalidInput]:
    types = set(map(type, inputs))
    if Prepared in types:
        return _prepare_others(model, engine, inputs, params)
    if types == {str} and validation.takes_any_text(model) and not model.fetch:
        return _prepare_isolated(engine, inputs, params)
    try:
        rejected = [_refusal(model, value) for value in inputs]
    except Exception:  # of an item that was stored unchecked: it must not end its slices' round
        rejected = [_refuse(model, value) for value in inputs]
    if not any(rejected):
        return _prepare_isolated(engine, inputs, params)
    return [
        InvalidInput(error[1]) if error else _prepare_isolated(engine, [value], params)[0]
        for value, error in zip(inputs, rejected, strict=True)
    ]


def _prepare_others(
    model: Model, engine: Engine, inputs: Sequence[Any], params: Mapping[str, Any]
) -> list[Prepared | InvalidInput]:
    """Prepares those inputs that no worker has prepared yet."""
    rest = [value for value in inputs if not isinstance(value, Prepared)]
    prepared = iter(_prepare(model, engine, rest, params) if rest else ())
    return [value if isinstance(value, Prepared) else next(prepared) for value in inputs]


def _refusal(model: Model, value: Any) -> tuple[str, str] | None:
    """Returns (code, message) where the model takes no such input."""
    if isinstance(value, bytes):  # fetched: its preparation looks at it
        return None
    if model.fetch and validation.is_address(value):  # those of items have been fetched
        return "type", "addresses are fetched for items of jobs alone: send what is there"
    return validation.refuse_input(model, value)


def _refuse(model: Model, value: Any) -> tuple[str, str] | None:
    """Returns (code, message) where the model takes no such input, or where its check breaks."""
    try:
        return _refusal(model, value)
    except Exception as error:
        return "type", f"{type(error).__name__}: {error}"


def _prepare_isolated(
    engine: Engine, inputs: Sequence[Any], params: Mapping[str, Any]
) -> list[Prepared | InvalidInput]:
    """Prepares inputs together; one at a time where the engine raises, to isolate what fails."""
    try:
        prepared = engine.prepare(inputs, params)
        if len(prepared) != len(inputs):
            raise ValueError(f"{len(prepared)} answers for {len(inputs)} inputs")
        return prepared
    except (Exception, SystemExit) as error:
        if len(inputs) == 1:
            return [InvalidInput(f"{type(error).__name__}: {error}")]
        return [_prepare_isolated(engine, [value], params)[0] for value in inputs]


def items_of(
    owners: Sequence[InFlightSlice],
    seqs: Sequence[int],
    parts: Sequence[int],
    prepared: Sequence[Entry | InvalidInput],
) -> list[Entry]:
    """Returns prepared items of slices as entries. One that was rejected fails at once. owners:
    slice of each."""
    rejected, entries = list[tuple[InFlightSlice, ItemOutcome]](), list[Entry]()
    owner = None
    for in_flight, seq, part, entry in zip(owners, seqs, parts, prepared, strict=True):
        if in_flight is not owner:
            owner, lease = in_flight, in_flight.lease
            tenant, weight, place = lease.tenant, lease.weight, lease.place
        if isinstance(entry, InvalidInput):
            rejected.append((in_flight, ItemOutcome(seq, 0, 0.0, None, entry, part=part)))
        else:
            entry.owner, entry.seq, entry.part = in_flight, seq, part
            entry.tenant, entry.weight, entry.place = tenant, weight, place
            entries.append(entry)
    end_together(rejected)
    return entries
