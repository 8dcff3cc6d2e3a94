"""Warm-up profile of a model: launches of several sizes, measured when it is loaded.

As many launches run at a time as there are slots, since each takes longer beside others.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from statistics import median
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

ROUNDS = 2  #: of launches of one size, after one that warms up
_MAX_S = 10.0  # a slow model isn't measured for longer
_SIMILAR = 3.0  # factor within which times are taken for the same

#: Launches, and the seconds that each took.
Measured = list[tuple[LaunchSize, float]]


def measure_launch_times(
    model: Model, engine: Engine, rules: Rules, known: Measured | None = None
) -> Measured:
    """Measures launches of one row, half a batch and a full batch of each of the engine's samples.
    The first of each size only warms up. A slow model's larger launches are left out.

    known: those of an earlier load, returned where launches of one row still take about as long.
    """
    measured: Measured = []
    since_s = clock.monotonic()
    with ThreadPoolExecutor(model.limits.in_flight) as slots:
        if known and still_hold(known, model, engine, slots):
            return known
        for sample in engine.samples():
            prepared = prepare(model, engine, [sample] * rules.limits.most_rows, {})
            entries = [entry for entry in prepared if isinstance(entry, Entry)]
            if entries:
                measured += _measure_sizes(model, engine, rules, entries, slots, since_s + _MAX_S)
    return measured


def still_hold(known: Measured, model: Model, engine: Engine, slots: ThreadPoolExecutor) -> bool:
    """Runs one row of each sample, which warms up. Returns True if that takes as long as is known,
    within a factor of 3 in the median: the first launches of a process are slower."""
    then: dict[LaunchSize, list[float]] = {}
    for size, seconds in known:
        then.setdefault(size, []).append(seconds)
    ratios: list[float] = []
    for sample in engine.samples():
        [entry] = prepare(model, engine, [sample], {})
        if not isinstance(entry, Entry):
            continue
        size = LaunchSize.from_sizes([entry.size], entry.bucket, pads=model.pads)
        if size not in then:
            return False
        took = timed(engine.run, [entry.data], slots, model.limits.in_flight, 0, -inf)
        ratios.append(median(took) / median(then[size]))
    return bool(ratios) and 1 / _SIMILAR <= median(ratios) <= _SIMILAR


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
        took = timed(engine.run, batch, slots, model.limits.in_flight, ROUNDS, until_s)
        measured += [(size, seconds) for seconds in took]
    return measured


def timed(
    run: bisection.Run,
    batch: Sequence[Any],
    slots: ThreadPoolExecutor,
    launches: int,
    rounds: int,
    until_s: float,
) -> list[float]:
    """Returns the seconds of each launch of a batch, `launches` at a time, in so many rounds, or
    fewer by `until_s` (monotonic). The first round only warms up, if there is another."""
    times = [_side_by_side(run, batch, slots, launches)]
    while len(times) <= rounds and clock.monotonic() < until_s:
        times.append(_side_by_side(run, batch, slots, launches))
    return [seconds for took in times[1:] or times for seconds in took]


def _side_by_side(
    run: bisection.Run, batch: Sequence[Any], slots: ThreadPoolExecutor, launches: int
) -> list[float]:
    """Returns the seconds of each of several launches that start together."""

    def _run_one(_: int) -> float:
        since_s = clock.monotonic()
        with Turn(Priority.ITEMS) as turn:
            bisection.run(run, batch, {})
        return clock.monotonic() - (turn.began_s or since_s) - turn.waited_s

    return list(slots.map(_run_one, range(launches)))
