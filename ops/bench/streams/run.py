"""Parts of `millrace bench streams`: a file each."""

from collections.abc import Sequence

from ops.bench.harness.scale import Scale
from ops.bench.results.parts import run_parts

PARTS = ("faults", "on_demand", "overhead", "items", "prefix", "masks", "adapters")


def run(scale: Scale, parts: Sequence[str]) -> None:
    """Measures these parts; none: all."""
    run_parts("streams", "ops.bench.streams", PARTS, parts, scale)
