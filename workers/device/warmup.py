"""Warm-up profile of a model: launches of several sizes, measured when it is loaded.

As many launches run at a time as there are slots, since each takes longer beside others.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jobs import clock
from jobs.models.model import Model
from workers.device import bisection
from workers.device.prepare import prepare
from workers.engines.preemption import Priority, Turn
from workers.engines.protocol import Engine
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Entry
from workers.scheduler.snapshot import LaneView, Rules

_ROUNDS = 2
_MAX_S = 10.0  # a slow model isn't measured for longer

#: Launches, and the seconds that each took.
Measured = list[tuple[LaunchSize, float]]


def measure_launch_times(model: Model, engine: Engine, rules: Rules) -> Measured:
    """Measures launches of one row, half a batch and a full batch of each of the engine's samples.
    The first of each size only warms up. A slow model's larger launches are left out."""
    measured: Measured = []
    since_s = clock.monotonic()
    with ThreadPoolExecutor(model.limits.in_flight) as slots:
        for sample in engine.samples():
            prepared = prepare(model, engine, [sample] * rules.limits.max_batch, {})
            entries = [entry for entry in prepared if isinstance(entry, Entry)]
            if entries:
                measured += _measure_sizes(model, engine, rules, entries, slots, since_s + _MAX_S)
    return measured


def _measure_sizes(
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
    measured: Measured = []
    for rows in sorted({1, (full + 1) // 2, full}):
        if measured and clock.monotonic() > until_s:
            break
        batch = [entry.data for entry in entries[:rows]]
        size = LaunchSize.from_sizes([first.size] * rows, first.bucket, pads=model.pads)
        took = timed(engine, batch, slots, model.limits.in_flight, _ROUNDS, until_s)
        measured += [(size, seconds) for seconds in took]
    return measured


def timed(
    engine: Engine,
    batch: Sequence[Any],
    slots: ThreadPoolExecutor,
    launches: int,
    rounds: int,
    until_s: float,
) -> list[float]:
    """Returns the seconds of each launch of a batch, `launches` at a time, in so many rounds, or
    fewer by `until_s` (monotonic). The first round only warms up, if there is another."""
    times = [_side_by_side(engine, batch, slots, launches)]
    while len(times) <= rounds and clock.monotonic() < until_s:
        times.append(_side_by_side(engine, batch, slots, launches))
    return [seconds for took in times[1:] or times for seconds in took]


def _side_by_side(
    engine: Engine, batch: Sequence[Any], slots: ThreadPoolExecutor, launches: int
) -> list[float]:
    """Returns the seconds of each of several launches that start together."""

    def _run_one(_: int) -> float:
        since_s = clock.monotonic()
        with Turn(Priority.ITEMS) as turn:
            bisection.run(engine.run, batch, {})
        return clock.monotonic() - (turn.began_s or since_s) - turn.waited_s

    return list(slots.map(_run_one, range(launches)))
