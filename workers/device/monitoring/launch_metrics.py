"""What one launch comes to, by lane and by tenant, and what one settlement. Once each: entries are
many, so their sums are left to what loops in C."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import orjson

from jobs import clock
from jobs.models.model import Model
from jobs.store.queue.settle import Attempt, Result
from jobs.telemetry.metrics import record
from workers.items.in_flight import InFlightSlice
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.snapshot import Rules

_ARRIVED, _PREPARE = attrgetter("arrived_s"), attrgetter("prepare_s")
_SIZE, _LANE, _TENANT = attrgetter("size"), attrgetter("lane"), attrgetter("tenant")


@dataclass(frozen=True, slots=True)
class _Part:
    """Some entries of a launch, summed up. prepare_s, waited_s: together."""

    entries: Sequence[Entry]
    size: int
    prepare_s: float
    waited_s: float

    @classmethod
    def of(cls, launch: Launch, entries: Sequence[Entry]) -> "_Part":
        prepare_s: float = sum(map(_PREPARE, entries))
        waited_s = len(entries) * launch.closed_s - sum(map(_ARRIVED, entries)) - prepare_s
        return cls(entries, sum(map(_SIZE, entries)), prepare_s, max(0.0, waited_s))

    def split(self, launch: Launch, name: Callable[[Entry], str]) -> "Iterable[tuple[str, _Part]]":
        """Most launches have one lane and one tenant."""
        names = set(map(name, self.entries))
        if len(names) == 1:
            return [(names.pop(), self)]
        groups: dict[str, list[Entry]] = {one: [] for one in names}
        for entry in self.entries:
            groups[name(entry)].append(entry)
        return [(one, _Part.of(launch, entries)) for one, entries in groups.items()]


def launched(model: Model, launch: Launch, rules: Rules) -> None:
    """It has ended. One of items is summed up at once: what is only noted keeps its entries. One of
    calls is noted: the next of them wait already, and their entries are few."""
    if launch.items and record.is_enabled():
        _sum_up(model, launch, rules)
    else:
        _sum_up_later(model, launch, rules)


def _sum_up(model: Model, launch: Launch, rules: Rules) -> None:
    whole = _Part.of(launch, launch.entries)
    count, device_s = len(launch.entries), launch.engine_s / launch.width
    record.launch(
        model.key,
        launch.reason,
        {"call": len(launch.calls), "item": len(launch.items)},
        _fill(launch, whole, rules),
        launch.engine_s,
        launch.predicted_s,
        device_s,
        whole.size,
        launch.padded_units if launch.pads else whole.size,
        {
            "preprocess": whole.prepare_s / count,
            "queue": whole.waited_s / count,
            "batch": launch.started_s - launch.closed_s,
            "engine": launch.engine_s,
        },
    )
    for lane, part in whole.split(launch, _LANE):
        record.lane_launch(model.key, lane, len(part.entries), part.waited_s)
    for kind, its in _kinds(launch, whole):
        for tenant, part in its.split(launch, _TENANT):
            rows = len(part.entries)
            share = part.size / max(1, whole.size) if launch.sized else rows / count
            record.tenant_launch(
                model.key, tenant, kind, rows, part.size, share * device_s, part.waited_s
            )


_sum_up_later = record.run_later(_sum_up)


def _kinds(launch: Launch, whole: _Part) -> Iterator[tuple[str, _Part]]:
    if launch.calls:
        yield "call", _Part.of(launch, launch.calls) if launch.items else whole
    if launch.items:
        yield "item", _Part.of(launch, launch.items) if launch.calls else whole


def _fill(launch: Launch, whole: _Part, rules: Rules) -> float:
    """By rows or by size: full is what can take no more of either."""
    rows = len(launch.entries) / rules.most_rows(launch.bucket)
    return max(rows, whole.size / rules.most_units) if rules.most_units else rows


def settled(
    finished: Sequence[InFlightSlice],
    results: Sequence[Result],
    attempts: Sequence[Attempt],
    seconds: float,
    ours: int,
) -> None:
    """Slices were recorded, of which so many leases were still ours. Where some weren't, nobody
    knows whose results they were: none are counted."""
    record.settlement(seconds, len(finished) - ours)
    if not record.is_enabled() or ours < len(finished):
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
