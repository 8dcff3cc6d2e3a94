"""The sweep that warms a model up: launches of many shapes, measured at load.

At load means as many launches at a time as there will be: side by side each takes longer.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jobs import clock
from jobs.models.model import Model
from workers.device import bisection
from workers.device.prepare import prepare
from workers.engines.protocol import Engine
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Entry
from workers.scheduler.snapshot import LaneView, Rules

_ROUNDS = 2
_MOST_S = 10.0  # a slow model isn't measured for longer

Measured = list[tuple[LaunchSize, float]]


def measure_launch_times(model: Model, engine: Engine, rules: Rules) -> Measured:
    """One, half of a launch and a whole one of each of the engine's samples, and what each took.
    The first of each shape warms up and counts for nothing."""
    found: Measured = []
    since_s = clock.monotonic()
    with ThreadPoolExecutor(model.limits.in_flight) as slots:
        for sample in engine.samples():
            made = prepare(model, engine, [sample] * rules.limits.max_batch, {})
            entries = [entry for entry in made if isinstance(entry, Entry)]
            if entries:
                found += _shapes(model, engine, rules, entries, slots, since_s + _MOST_S)
    return found


def _shapes(
    model: Model,
    engine: Engine,
    rules: Rules,
    entries: Sequence[Entry],
    slots: ThreadPoolExecutor,
    until_s: float,
) -> Measured:
    first = entries[0]
    view = LaneView(first.lane, first.bucket, items=1, items_units=first.size)
    full = min(len(entries), rules.full_rows(view))
    found: Measured = []
    for rows in sorted({1, (full + 1) // 2, full}):
        batch = [entry.data for entry in entries[:rows]]
        work = LaunchSize.from_sizes([first.size] * rows, first.bucket, pads=model.pads)
        took = timed(engine, batch, slots, model.limits.in_flight, _ROUNDS, until_s)
        found += [(work, seconds) for seconds in took]
    return found


def timed(
    engine: Engine,
    batch: Sequence[Any],
    slots: ThreadPoolExecutor,
    launches: int,
    rounds: int,
    until_s: float,
) -> list[float]:
    """Seconds of each launch of this batch, so many at a time, in so many rounds, or fewer where
    they take until then. The first round warms up and counts for nothing if there is another."""
    times = [_side_by_side(engine, batch, slots, launches)]
    while len(times) <= rounds and clock.monotonic() < until_s:
        times.append(_side_by_side(engine, batch, slots, launches))
    return [seconds for took in times[1:] or times for seconds in took]


def _side_by_side(
    engine: Engine, batch: Sequence[Any], slots: ThreadPoolExecutor, launches: int
) -> list[float]:
    """Seconds of each of so many launches that start together."""

    def one(_: int) -> float:
        since_s = clock.monotonic()
        bisection.run(engine.run, batch, {})
        return clock.monotonic() - since_s

    return list(slots.map(one, range(launches)))
