"""Limits of launches that a model's entry leaves out, found by measurement when it is loaded.

How many rows a device needs until more of them don't raise its throughput differs by a factor of a
hundred between a CPU and a GPU, and nobody who writes an entry knows it. Copies of each sample are
launched by 1, 2, 4, …; of the sizes that reach nearly the best throughput the smallest is taken,
since larger ones only add latency, but none that is over sooner than what surrounds a launch costs.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from statistics import median
from typing import Any

from jobs import clock
from jobs.models.model import Limits, Model
from workers.device.prepare import prepare
from workers.device.warmup.measure import ROUNDS, Measured, still_hold, timed
from workers.engines.protocol import Engine
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Entry

MOST_ROWS = 4096  #: of a launch whose limits are measured
MOST_UNITS = 65_536  #: size of such a launch, in the model's unit, padding included
_GAIN = 1.05  # in throughput, that makes larger launches worth while
_GOOD_SHARE = 0.95  # of the best throughput
_SHORT_S = 0.02  # a launch of less costs about as much around it, and holds up no call
_LONGEST_S = 1.0  # of a launch: cancelling a job, and a call beside it, wait no longer
_MAX_S = 3.0  # of measuring a model

_log = logging.getLogger(__name__)


def measure_limits(
    model: Model, engine: Engine, known: Measured | None = None
) -> tuple[Model, Measured]:
    """Returns a loaded model with the limits that its entry leaves out, and the launches that they
    were found by; as it is, with none, where nothing is left out or no sample runs.

    known: launches of an earlier load, which count unless they take longer or shorter now.
    """
    if not model.measures_limits:
        return model, []
    with ThreadPoolExecutor(model.limits.in_flight) as slots:
        if not (measured := known) or not still_hold(measured, model, engine, slots):
            measured = _measured(model, engine, slots)
    if not measured:
        return model, []
    limits = found_limits(model, measured)
    _log.info(
        "%s: launches of up to %d entries, %d %s, as measured here",
        *(model.key, limits.most_rows, limits.max_tokens, model.spec.unit),
    )
    return replace(model, limits=limits), measured


def found_limits(model: Model, measured: Measured) -> Limits:
    """Returns the limits of the smallest launches that are good enough, over all sizes of rows."""
    by_size: dict[tuple[float, int], dict[int, list[float]]] = {}
    for size, seconds in measured:
        rows = by_size.setdefault((size.units / size.rows, size.bucket), {})
        rows.setdefault(size.rows, []).append(seconds)
    best = {
        units: _good_rows({rows: median(took) for rows, took in times.items()})
        for (units, _), times in by_size.items()
    }
    limits = replace(model.limits, max_batch=max(best.values()))
    if model.size_buckets and not limits.max_tokens:
        limits = replace(limits, max_tokens=round(max(n * units for units, n in best.items())))
    return limits


def _good_rows(seconds: Mapping[int, float]) -> int:
    """Returns the rows of the launches to make. seconds: of a launch, by rows."""
    fastest = max(rows / took for rows, took in seconds.items())
    good = [rows for rows, took in seconds.items() if rows / took >= _GOOD_SHARE * fastest]
    return max(min(good), max((n for n in good if seconds[n] <= _SHORT_S), default=1))


class Sweep:
    """Sizes of launches that are worth measuring: doubled until two in a row gain nothing, where
    they are no longer short, or one takes a second."""

    def __init__(self, most_rows: int) -> None:
        self.rows: int = 1  #: of the next launch; 0: there is none
        self.in_vain: int = 0  #: latest sizes in a row that gained nothing
        self._most, self._best = most_rows, 0.0

    def add(self, seconds: float) -> None:
        """Takes the time of a launch of `rows`, and sets those of the next."""
        rate = self.rows / max(1e-9, seconds)
        self.in_vain = 0 if rate >= _GAIN * self._best else self.in_vain + 1
        self._best = max(self._best, rate)
        flat = self.in_vain >= 2 and seconds > _SHORT_S
        over = flat or seconds > _LONGEST_S or self.rows == self._most
        self.rows = 0 if over else min(self._most, 2 * self.rows)


def most_rows(model: Model, size: int) -> int:
    """Returns the most rows of a launch of one size that may be measured."""
    return max(1, min(MOST_ROWS, (model.limits.max_tokens or MOST_UNITS) // max(1, size)))


def _measured(model: Model, engine: Engine, slots: ThreadPoolExecutor) -> Measured:
    """Returns the launches of each sample that was measured to the end. The first launches of a
    process, which may take seconds, come before the time counts."""
    prepared = [prepare(model, engine, [sample], {})[0] for sample in engine.samples()]
    entries = [entry for entry in prepared if isinstance(entry, Entry)]
    for entry in entries:
        timed(engine.run, [entry.data], slots, model.limits.in_flight, 0, -inf)
    measured: Measured = []
    until_s = clock.monotonic() + _MAX_S
    for left, entry in zip(range(len(entries), 0, -1), entries, strict=True):
        now_s = clock.monotonic()
        measured += _sizes_of(model, engine, entry, slots, now_s + (until_s - now_s) / left)
    return measured


def _sizes_of(
    model: Model, engine: Engine, entry: Entry, slots: ThreadPoolExecutor, until_s: float
) -> Measured:
    """Launches copies of an entry until a launch fails, as for lack of memory, or no larger one is
    worth while. Returns nothing where the time is up while they still gain."""
    measured: Measured = []
    failed = list[BaseException]()

    def _run(batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        if not failed:
            try:
                return engine.run(batch, params)
            except Exception as error:
                failed.append(error.with_traceback(None))
        return batch  # in place of outputs: what failed is not tried by halves

    size = max(1, entry.bucket if model.pads and entry.bucket else entry.size)
    sweep = Sweep(most_rows(model, size))
    while rows := sweep.rows:
        if measured and clock.monotonic() > until_s:
            return measured if sweep.in_vain else []
        batch = [entry.data] * rows
        took = timed(_run, batch, slots, model.limits.in_flight, ROUNDS, until_s)
        if failed:
            break
        work = LaunchSize.from_sizes([entry.size] * rows, entry.bucket, pads=model.pads)
        measured += [(work, seconds) for seconds in took]
        sweep.add(median(took))
    return measured
