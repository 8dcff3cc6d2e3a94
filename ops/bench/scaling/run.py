"""Parts of `millrace bench scaling`: a file each."""

from collections.abc import Sequence

from ops.bench.harness.scale import Scale
from ops.bench.results.parts import run_parts

PARTS = ("simulated", "yielding", "placement", "mixed", "prepare", "cheapest", "spot", "live")


def run(scale: Scale, parts: Sequence[str]) -> None:
    """Measures these parts; none: all."""
    run_parts("scaling", "ops.bench.scaling", PARTS, parts, scale)
