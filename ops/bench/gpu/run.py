"""Parts of `millrace bench gpu`: a file each, which starts a platform of its own.

On the CPU everything is small: that shows that the benchmark works, and its figures mean nothing.
"""

from collections.abc import Sequence

from ops.bench.gpu.target import check_device
from ops.bench.harness.scale import FULL, QUICK
from ops.bench.results.parts import run_parts

PARTS = ("minilm", "large_encoder", "calls")


def run(device: str, quick: bool, parts: Sequence[str]) -> None:
    """Measures these parts; none: all. device: of torch; quick: short runs, as on the CPU."""
    check_device(device)
    scale = QUICK if quick or not device.startswith("cuda") else FULL
    run_parts("gpu", "ops.bench.gpu", PARTS, parts, scale, device=device)
