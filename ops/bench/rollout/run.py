"""Parts of `millrace bench rollout`: a file each."""

from collections.abc import Sequence

from ops.bench.harness.scale import Scale
from ops.bench.results.parts import run_parts

PARTS = ("false_alarms", "detection", "splits", "aliases", "live", "shadows", "artifacts")


def run(scale: Scale, parts: Sequence[str]) -> None:
    """Measures these parts; none: all."""
    run_parts("rollout", "ops.bench.rollout", PARTS, parts, scale)
