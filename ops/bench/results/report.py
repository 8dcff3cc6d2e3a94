"""Last line of a benchmark: the machine, the figures, and the thresholds that they are held to."""

import functools
import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import click

from ops.bench.harness.scale import FULL, Scale

_DIGITS = 6  # significant ones


@dataclass(frozen=True, slots=True)
class Threshold:
    """Limit of a figure, whose name ends with its unit."""

    figure: str
    limit: str  #: "<= 5", ">= 0.95" or "0.82 ± 0.01"

    def holds(self, value: float) -> bool:
        """Returns True if a value is within the limit. Raises ValueError for an unknown form."""
        match self.limit.split():
            case ["<=", most]:
                return value <= float(most)
            case [">=", least]:
                return value >= float(least)
            case [middle, "±", tolerance]:
                return abs(value - float(middle)) <= float(tolerance)
        raise ValueError(f"unknown form of a threshold: {self.limit!r}")


class Report:
    """Figures under flat names, and thresholds of some of them.

    thresholds: such as "p95_ms <= 5". quick: marks the line of a trial, whose figures don't count.
    """

    def __init__(self, bench: str, thresholds: Iterable[str], quick: bool = False) -> None:
        self._bench, self._quick = bench, quick
        self._thresholds = {
            name: Threshold(name, limit)
            for name, _, limit in (threshold.partition(" ") for threshold in thresholds)
        }
        self.figures: dict[str, float] = {}

    def add(self, **figures: float) -> None:
        """Adds figures, rounded to six digits, and prints them."""
        for name, value in figures.items():
            self.figures[name] = float(f"{value:.{_DIGITS}g}")
            held = self._thresholds.get(name)
            asked = f" (asked: {held.limit})" if held else ""
            click.echo(f"  {name} = {self.figures[name]:g}{asked}", err=True)

    def median(self, **runs: Iterable[float]) -> None:
        """Adds the median of each figure's runs."""
        self.add(**{name: median(values) for name, values in runs.items()})

    def spread(self, **runs: Sequence[float]) -> None:
        """Adds medians and, as NAME_spread, the range of the runs as a share of the median."""
        for name, values in runs.items():
            middle = median(values)
            spread = (max(values) - min(values)) / (middle or 1)
            self.add(**{name: middle, f"{name}_spread": spread})

    def finish(self) -> None:
        """Prints the line of JSON. A figure that wasn't measured doesn't hold its threshold."""
        rows = [
            {
                "figure": name,
                "value": self.figures.get(name),
                "asked": threshold.limit,
                "holds": name in self.figures and threshold.holds(self.figures[name]),
            }
            for name, threshold in self._thresholds.items()
        ]
        line = {
            "bench": self._bench,
            **({"quick": True} if self._quick else {}),
            "machine": machine(),
            "figures": self.figures,
            "asked": rows,
        }
        click.echo(json.dumps(line, ensure_ascii=False))


Measure = Callable[..., Any]


def scenario(name: str, *thresholds: str) -> Callable[[Measure], Measure]:
    """Decorates a function that measures into a report and returns a picture or None.

    The result takes the scale (FULL by default) and the function's keyword arguments.
    """

    def decorate(measure: Measure) -> Measure:
        @functools.wraps(measure)
        def run(scale: Scale = FULL, **options: Any) -> None:
            report = Report(name, thresholds, scale.quick)
            if picture := measure(report, scale, **options):
                from ops.bench.results.plots import save_picture

                save_picture(name, picture, scale.quick)
            report.finish()

        return run

    return decorate


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
