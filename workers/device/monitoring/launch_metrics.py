"""Metrics of launches, by lane and by tenant, and of settlements. Entries are many: each launch is
summed up once, by functions that loop in C."""

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
    """Sums over some entries of a launch."""

    entries: Sequence[Entry]
    size: int  #: in the engine's unit
    prepare_s: float  #: preparation, all entries together
    waited_s: float  #: time in the lanes, all entries together

    @classmethod
    def from_entries(cls, launch: Launch, entries: Sequence[Entry]) -> "_Part":
        """Sums up entries of a launch."""
        prepare_s: float = sum(map(_PREPARE, entries))
        waited_s = len(entries) * launch.closed_s - sum(map(_ARRIVED, entries)) - prepare_s
        return cls(entries, sum(map(_SIZE, entries)), prepare_s, max(0.0, waited_s))

    def split(self, launch: Launch, name: Callable[[Entry], str]) -> "Iterable[tuple[str, _Part]]":
        """Groups the entries by name; most launches have one lane and one tenant."""
        names = set(map(name, self.entries))
        if len(names) == 1:
            return [(names.pop(), self)]
        groups: dict[str, list[Entry]] = {one: [] for one in names}
        for entry in self.entries:
            groups[name(entry)].append(entry)
        return [(one, _Part.from_entries(launch, entries)) for one, entries in groups.items()]


def record_launch(model: Model, launch: Launch, rules: Rules) -> None:
    """Records a launch that has ended: at once if it has items, since a deferred one keeps their
    memory; deferred if it has calls alone, since the next calls wait already."""
    if launch.items and record.is_enabled():
        _sum_up(model, launch, rules)
    else:
        _sum_up_later(model, launch, rules)


def _sum_up(model: Model, launch: Launch, rules: Rules) -> None:
    whole = _Part.from_entries(launch, launch.entries)
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
        yield "call", _Part.from_entries(launch, launch.calls) if launch.items else whole
    if launch.items:
        yield "item", _Part.from_entries(launch, launch.items) if launch.calls else whole


def _fill(launch: Launch, whole: _Part, rules: Rules) -> float:
    """Returns the fill ratio: by rows or by size, whichever is larger."""
    rows = len(launch.entries) / rules.most_rows(launch.bucket)
    return max(rows, whole.size / rules.most_units) if rules.most_units else rows


def record_settlement(
    slices: Sequence[InFlightSlice],
    results: Sequence[Result],
    attempts: Sequence[Attempt],
    seconds: float,
    settled: int,
) -> None:
    """Records a settlement of slices of one model, or a record of some that go on. settled: number
    of leases that were still held; where some had been lost, items are not counted, since it isn't
    known whose they were."""
    record.settlement(seconds, len(slices) - settled)
    if not record.is_enabled() or settled < len(slices):
        return
    now_s = clock.monotonic()
    model = slices[0].lease.model
    if ended_s := [one.finished_s for one in slices if one.finished]:
        record.postprocessed(model, [now_s - each_s for each_s in ended_s])
    failed = [result for result in results if result.error]
    if results:
        record.items_ended(model, "succeeded", len(results) - len(failed))
        record.items_ended(model, "failed", len(failed))
    if attempts:
        record.item_retries(model, len(attempts))
    failures: list[Result | Attempt] = [*failed, *attempts]
    for code, count in Counter(map(_code, failures)).items():
        record.item_errors(model, code, count)


def _code(failure: Result | Attempt) -> str:
    code: str = orjson.loads(failure.error or "{}").get("code", "")
    return code
