"""What one launch comes to, by lane and by tenant, and what one settlement. Once each: entries are
many, so their sums are left to what loops in C."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

import orjson

from jobs import clock
from jobs.registry import Model
from jobs.store.settling import Attempt, Result
from jobs.telemetry import record
from workers.inhand import Holding
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.views import Rules

_ARRIVED, _PREPARE = attrgetter("arrived_s"), attrgetter("prepare_s")
_SIZE, _LANE, _TENANT = attrgetter("size"), attrgetter("lane"), attrgetter("tenant")


def launched(model: Model, launch: Launch, rules: Rules) -> None:
    """It has ended."""
    if not record.is_on():
        return
    key, count, units = model.key, len(launch.entries), launch.units
    device_s = launch.engine_s / launch.width
    waited_s = _waited_s(launch, launch.entries)
    record.launch(
        key,
        launch.reason,
        {"call": len(launch.calls), "item": len(launch.items)},
        _fill(launch, rules),
        launch.engine_s,
        launch.predicted_s,
        device_s,
        units,
        launch.padded_units,
        {
            "preprocess": sum(map(_PREPARE, launch.entries)) / count,
            "queue": waited_s / count,
            "batch": launch.started_s - launch.closed_s,
            "engine": launch.engine_s,
        },
    )
    for lane, entries in _by(_LANE, launch.entries):
        record.launch_of_lane(key, lane, len(entries), _waited_s(launch, entries))
    for kind, its in (("call", launch.calls), ("item", launch.items)):
        for tenant, entries in _by(_TENANT, its):
            size = sum(map(_SIZE, entries))
            share = size / max(1, units) if launch.sized else len(entries) / count
            waited_s = _waited_s(launch, entries)
            record.launch_of_tenant(
                key, tenant, kind, len(entries), size, share * device_s, waited_s
            )


def settled(
    finished: Sequence[Holding],
    results: Sequence[Result],
    attempts: Sequence[Attempt],
    seconds: float,
    ours: int,
) -> None:
    """Slices were recorded, of which so many leases were still ours. Where some weren't, nobody
    knows whose results they were: none are counted."""
    record.settlement(seconds, len(finished) - ours)
    if not record.is_on() or ours < len(finished):
        return
    now_s = clock.monotonic()
    models = {holding.lease.job_id: holding.lease.model for holding in finished}
    for holding in finished:
        record.postprocessed(holding.lease.model, now_s - holding.ended_s)
    failed = [result for result in results if result.error]
    for model, count in Counter(models[result.job_id] for result in results).items():
        lost = sum(models[result.job_id] == model for result in failed)
        record.items_ended(model, "succeeded", count - lost)
        record.items_ended(model, "failed", lost)
    for model, count in Counter(models[attempt.job_id] for attempt in attempts).items():
        record.item_retries(model, count)
    unhappy: list[Result | Attempt] = [*failed, *attempts]
    codes = Counter((models[one.job_id], _code(one)) for one in unhappy)
    for (model, code), count in codes.items():
        record.item_errors(model, code, count)


def _code(one: Result | Attempt) -> str:
    code: str = orjson.loads(one.error or "{}").get("code", "")
    return code


def _waited_s(launch: Launch, entries: Sequence[Entry]) -> float:
    """In their lane, together."""
    ready_s: float = sum(map(_ARRIVED, entries)) + sum(map(_PREPARE, entries))
    return max(0.0, len(entries) * launch.closed_s - ready_s)


def _fill(launch: Launch, rules: Rules) -> float:
    """By rows or by size: full is what can take no more of either."""
    rows = len(launch.entries) / rules.most_rows(launch.bucket)
    return max(rows, launch.units / rules.most_units) if rules.most_units else rows


def _by(
    name: Callable[[Entry], str], entries: Sequence[Entry]
) -> Iterator[tuple[str, Sequence[Entry]]]:
    """Most launches have one lane and one tenant."""
    names = set(map(name, entries))
    if len(names) == 1:
        yield names.pop(), entries
        return
    groups: dict[str, list[Entry]] = {one: [] for one in names}
    for entry in entries:
        groups[name(entry)].append(entry)
    yield from groups.items()
