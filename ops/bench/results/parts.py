"""Scenarios of several parts: a module each, with the figures that it asks for.

A part has `ASKED`, thresholds as of a `Report`, and `measure(report, scale)`, which starts what it
needs; it takes the options of the scenario, if there are any.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report, scenario


def run_parts(
    name: str,
    package: str,
    parts: Sequence[str],
    chosen: Sequence[str],
    scale: Scale,
    **options: Any,
) -> None:
    """Measures parts of a scenario, one after the other, and prints a line after each.

    parts: modules of the package. chosen: those to measure; none: all. Raises BenchError.
    """
    if unknown := set(chosen) - {*parts}:
        raise BenchError(
            f"there is no part {', '.join(sorted(unknown))}; there are: {', '.join(parts)}"
        )
    modules = {
        part: import_module(f"{package}.{part}") for part in parts if part in chosen or not chosen
    }
    asked = [limit for module in modules.values() for limit in module.ASKED]

    def measure(report: Report, scale: Scale) -> Any:
        """Measures one part after the other."""
        for part, module in modules.items():
            say(f"part: {part}")
            module.measure(report, scale, **options)
            report.end_part(part)

    scenario(name, *asked)(measure)(scale)
