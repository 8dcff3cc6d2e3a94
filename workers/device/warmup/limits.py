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
_GPU_LAUNCHES = 2  # at a time: one is closed and copied while the other runs
_GAIN = 1.05  # in throughput, that makes larger launches worth while
_GOOD_SHARE = 0.95  # of the best throughput
_SHORT_S = 0.02  # a launch of less costs about as much around it, and holds up no call
_LONGEST_S = 1.0  # of a launch: cancelling a job, and a call beside it, wait no longer
_MAX_S = 3.0  # of measuring a model

_log = logging.getLogger(__name__)


def on_device(model: Model, device: str) -> Model:
    """Returns a model with the launches at a time that its entry leaves out: two on a GPU, one
    elsewhere. device: the worker's, in torch's terms, unless the model's options name another."""
    if model.limits.in_flight is not None or not model.spec.measured:
        return model
    device = model.options.get("device") or device
    launches = _GPU_LAUNCHES if device.startswith("cuda") else 1
    return replace(model, limits=replace(model.limits, in_flight=launches))


def measure_limits(
    model: Model, engine: Engine, known: Measured | None = None
) -> tuple[Model, Measured]:
    """Returns a loaded model with the limits that its entry leaves out, and the launches that they
    were found by; as it is, with none, where nothing is left out or no sample runs.

    known: launches of an earlier load, which count unless they take longer or shorter now.
    """
    if not model.measures_limits:
        return model, []
    with ThreadPoolExecutor(model.limits.launches) as slots:
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
        self._most, self._best, self._in_vain = most_rows, 0.0, 0

    def add(self, seconds: float) -> None:
        """Takes the time of a launch of `rows`, and sets those of the next."""
        rate = self.rows / max(1e-9, seconds)
        self._in_vain = 0 if rate >= _GAIN * self._best else self._in_vain + 1
        self._best = max(self._best, rate)
        in_vain = self._in_vain >= 2 and seconds > _SHORT_S
        over = in_vain or seconds > _LONGEST_S or self.rows == self._most
        self.rows = 0 if over else min(self._most, 2 * self.rows)


def most_rows(model: Model, size: int) -> int:
    """Returns the most rows of a launch of one size that may be measured."""
    return max(1, min(MOST_ROWS, (model.limits.max_tokens or MOST_UNITS) // max(1, size)))


def _measured(model: Model, engine: Engine, slots: ThreadPoolExecutor) -> Measured:
    samples = engine.samples()
    measured: Measured = []
    until_s = clock.monotonic() + _MAX_S
    for left, sample in zip(range(len(samples), 0, -1), samples, strict=True):
        now_s = clock.monotonic()
        [entry] = prepare(model, engine, [sample], {})
        if isinstance(entry, Entry):
            share_s = (until_s - now_s) / left
            measured += _sizes_of(model, engine, entry, slots, now_s + share_s)
    return measured


def _sizes_of(
    model: Model, engine: Engine, entry: Entry, slots: ThreadPoolExecutor, until_s: float
) -> Measured:
    """Launches copies of an entry. One that fails, as for lack of memory, ends it."""
    measured: Measured = []
    failed = list[BaseException]()

    def _run(batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        try:
            return engine.run(batch, params)
        except Exception as error:
            failed.append(error.with_traceback(None))
            raise

    size = max(1, entry.bucket if model.pads and entry.bucket else entry.size)
    sweep = Sweep(most_rows(model, size))
    while rows := sweep.rows:
        batch = [entry.data] * rows
        took = timed(_run, batch, slots, model.limits.launches, ROUNDS, until_s)
        if failed:
            break
        work = LaunchSize.from_sizes([entry.size] * rows, entry.bucket, pads=model.pads)
        measured += [(work, seconds) for seconds in took]
        sweep.add(median(took))
        if clock.monotonic() > until_s:
            break
    return measured
