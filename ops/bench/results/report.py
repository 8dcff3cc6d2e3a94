"""Last line of a benchmark: the machine, the figures, and the thresholds that they are held to."""

import functools
import json
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from ops.bench.data import folder
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load.open_loop import Calls

_DIGITS = 6  # significant ones


def holds(limit: str, value: float) -> bool:
    """Returns True if a value is within a limit: "<= 5", ">= 0.95" or "0.82 ± 0.01".

    Raises ValueError for an unknown form.
    """
    match limit.split():
        case ["<=", most]:
            return value <= float(most)
        case [">=", least]:
            return value >= float(least)
        case [middle, "±", tolerance]:
            return abs(value - float(middle)) <= float(tolerance)
    raise ValueError(f"unknown form of a threshold: {limit!r}")


class Report:
    """Figures under flat names, and thresholds of some of them.

    thresholds: such as "p95_ms <= 5". quick: marks the line of a trial, whose figures don't count.
    """

    def __init__(self, bench: str, thresholds: Iterable[str], quick: bool = False) -> None:
        self._bench, self._quick = bench, quick
        parts = (threshold.partition(" ") for threshold in thresholds)
        self._limits = {name: limit for name, _, limit in parts}
        self.figures: dict[str, float] = {}
        self._told: set[str] = set()  # figures of parts that have ended
        self._left_out: dict[str, str] = {}
        self.finished = False  #: its last line has been printed

    def add(self, prefix: str = "", /, **figures: float) -> None:
        """Adds figures, rounded to six digits, and prints them. prefix: of their names."""
        for end, value in figures.items():
            name = prefix + end
            self.figures[name] = float(f"{value:.{_DIGITS}g}")
            asked = f" (asked: {self._limits[name]})" if name in self._limits else ""
            click.echo(f"  {name} = {self.figures[name]:g}{asked}", err=True)

    def median(self, prefix: str = "", /, **runs: Iterable[float]) -> None:
        """Adds the median of each figure's runs."""
        self.add(prefix, **{name: median(values) for name, values in runs.items()})

    def spread(self, prefix: str = "", /, **runs: Sequence[float]) -> None:
        """Adds medians and, as NAME_spread, the range of the runs as a share of the median."""
        for name, values in runs.items():
            middle = median(values)
            spread = (max(values) - min(values)) / (middle or 1)
            self.add(prefix, **{name: middle, f"{name}_spread": spread})

    def percentiles(self, name: str, samples: Sequence[float], *which: float) -> None:
        """Adds percentiles. name: with braces in place of "p50" and the like; 100 is "max"."""
        for share, value in zip(which, np.percentile(samples, which), strict=True):
            self.add(**{name.format("max" if share == 100 else f"p{share:g}"): float(value)})

    def latencies(self, runs: Iterable[Calls], name: str = "p{}_ms") -> None:
        """Adds the median over runs of p50 and p99, the spread of p95. name: with the percentile
        in place of the braces."""
        p50s, p95s, p99s = zip(*(calls.percentiles(50, 95, 99) for calls in runs), strict=True)
        self.spread(**{name.format(95): p95s})
        self.median(**{name.format(50): p50s, name.format(99): p99s})

    def leave_out(self, name: str, why: str) -> None:
        """Tells why a figure with a threshold can't be measured here."""
        self._left_out[name] = why
        click.echo(f"  {name} is left out: {why}", err=True)

    def end_part(self, part: str) -> None:
        """Prints a line of JSON with the figures since the part before."""
        figures = {name: n for name, n in self.figures.items() if name not in self._told}
        self._told |= figures.keys()
        click.echo(json.dumps({"bench": self._bench, "part": part, "figures": figures}))

    def finish(self, *, cut_off: bool = False) -> None:
        """Prints the line of JSON. A figure that wasn't measured doesn't hold its threshold; of one
        that was left out it isn't known. cut_off: ended before all was measured."""
        self.finished = True
        line = {
            "bench": self._bench,
            **({"quick": True} if self._quick else {}),
            **({"cut_off": True} if cut_off else {}),
            "data": folder.origin(),
            "machine": machine(),
            "figures": self.figures,
            "asked": [self._row(name, limit) for name, limit in self._limits.items()],
        }
        click.echo(json.dumps(line, ensure_ascii=False))

    def _row(self, name: str, limit: str) -> dict[str, Any]:
        value = self.figures.get(name)
        row = {"figure": name, "value": value, "asked": limit}
        if why := self._left_out.get(name):
            return {**row, "holds": None, "left_out": why}
        return {**row, "holds": value is not None and holds(limit, value)}


Measure = Callable[..., Any]


def scenario(name: str, *thresholds: str) -> Callable[[Measure], Measure]:
    """Decorates a function that measures into a report and returns a picture or None.

    The result takes the scale (FULL by default) and the function's keyword arguments.
    """

    def decorate(measure: Measure) -> Measure:
        """Wraps it."""

        @functools.wraps(measure)
        def run(scale: Scale = FULL, **options: Any) -> None:
            """Measures, saves the picture and prints the report."""
            folder.forget()
            report = Report(name, thresholds, scale.quick)
            with _told_when_cut_off(report):
                picture = measure(report, scale, **options)
            if picture:
                from ops.bench.results.plots import save_picture

                save_picture(name, picture, scale.quick)
            report.finish()

        return run

    return decorate


@contextmanager
def _told_when_cut_off(report: Report) -> Iterator[None]:
    """Prints what was measured where the process is told to end (SIGTERM, as `timeout` sends it, or
    Ctrl-C), before anything is stopped, which may take long."""

    def end(number: int, _: Any) -> None:
        """Handles a signal; a second one ends what stops."""
        if not report.finished:
            report.finish(cut_off=True)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def machine() -> dict[str, Any]:
    """Facts that figures of this machine depend on."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpus = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "cpu": cpus[0] if cpus else platform.machine(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }
