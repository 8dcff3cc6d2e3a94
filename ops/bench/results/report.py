"""The last line of a benchmark: where it ran, what it measured, and whether that was asked for."""

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

_DIGITS = 6  # significant ones


class Report:
    """Figures under flat names, against what was asked of some of them ("<= 5", "0.82 ± 0.01").
    quick: they are a trial's, too few to be figures, and the last line says so."""

    def __init__(self, bench: str, asked: Mapping[str, str], quick: bool = False) -> None:
        self._bench, self._asked, self._quick = bench, asked, quick
        self.figures: dict[str, float] = {}

    def add(self, **figures: float) -> None:
        for name, value in figures.items():
            self.figures[name] = float(f"{value:.{_DIGITS}g}")
            asked = f" (asked: {self._asked[name]})" if name in self._asked else ""
            click.echo(f"  {name} = {self.figures[name]:g}{asked}", err=True)

    def finish(self) -> None:
        """Prints the one JSON line. What couldn't be measured has no value, and doesn't hold."""
        rows = [
            {
                "figure": name,
                "value": self.figures.get(name),
                "asked": asked,
                "holds": name in self.figures and holds(self.figures[name], asked),
            }
            for name, asked in self._asked.items()
        ]
        line = {
            "bench": self._bench,
            **({"quick": True} if self._quick else {}),
            "machine": machine(),
            "figures": self.figures,
            "asked": rows,
        }
        click.echo(json.dumps(line, ensure_ascii=False))


def holds(value: float, asked: str) -> bool:
    """Whether a figure is what was asked: "<= 5", ">= 0.95", or "0.82 ± 0.01"."""
    match asked.split():
        case ["<=", most]:
            return value <= float(most)
        case [">=", least]:
            return value >= float(least)
        case [middle, "±", tolerance]:
            return abs(value - float(middle)) <= float(tolerance)
    raise ValueError(f"{asked!r} asks for nothing that can be told")


def machine() -> dict[str, Any]:
    """What a figure of this machine can be compared with."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "cpu": _cpu(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def _cpu() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.machine()
