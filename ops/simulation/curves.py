"""Throughput curves of models, as `millrace model check --json` prints them: a model a line."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.scheduler.cost import LaunchSize
from workers.simulation.costs import LaunchTimes


@dataclass(frozen=True, slots=True)
class Measured:
    """Launches of one model on one kind of device."""

    times: LaunchTimes
    memory_gib: float  #: of its weights; 0: its engine counts none


def read(path: Path) -> dict[str, Measured]:
    """Reads the curves of all models, by name@version; lines without a curve (of models that
    generate, or failed) are left out. Raises ValueError with all problems."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} can't be read: {error}") from error
    found: dict[str, Measured] = {}
    problems: list[str] = []
    for n, line in enumerate(lines, 1):
        try:
            report = json.loads(line) if line.strip() else {}
            if report.get("curves"):
                found[report["model"]] = _measured(report)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problems.append(f"{path}, line {n}: {type(error).__name__}: {error}")
    if not found and not problems:
        problems.append(f"{path} has none; make it by `millrace model check --json`")
    if problems:
        raise ValueError(*problems)
    return found


def _measured(report: dict[str, Any]) -> Measured:
    launches = [
        (
            LaunchSize.alike(point["rows"], curve.get("size") or curve["bucket"], curve["bucket"]),
            point["launch_ms"] / 1000,
        )
        for curve in report["curves"]
        for point in curve["points"]
    ]
    return Measured(LaunchTimes.fitted(launches), report["memory_mb"] / 1024)
