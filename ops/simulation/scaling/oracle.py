"""The clairvoyant: the least time of replicas that refuses nothing, knowing all that comes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from ops.simulation.scaling.fluid import Load

_BLOCK_S = 10.0


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    """Replicas of one that knows what comes."""

    replica_s: float  #: time of replicas, boots included, which it begins ahead
    ready: Sequence[int]  #: by block of time
    block_s: float


def foresee(load: Load, boot_s: float) -> Clairvoyant:
    """Returns the replicas for a load. One is kept over a gap that is shorter than a boot."""
    needs = _needs(load)
    block_s = max(1, round(_BLOCK_S / load.step_s)) * load.step_s
    gap, boots, ready = boot_s / block_s, 0, [0] * len(needs)
    for level in range(1, max(needs, default=0) + 1):
        last: int | None = None
        for n, need in enumerate(needs):
            if need < level:
                continue
            # The first replicas are there from the beginning: as all controllers', they don't boot.
            kept = last is not None and n - last - 1 <= gap
            boots += last is not None and not kept
            for idle in range(last + 1 if kept and last is not None else n, n + 1):
                ready[idle] += 1
            last = n
    return Clairvoyant(sum(ready) * block_s + boots * boot_s, ready, block_s)


def _needs(load: Load) -> list[int]:
    """Returns the fewest replicas that refuse nothing, by block: those that do the work of each
    stretch of it within the stretch and the target."""
    steps = max(1, round(_BLOCK_S / load.step_s))
    sums = [0.0, *accumulate(load.work)]
    needs = []
    for start in range(0, len(load.work), steps):
        stop = min(start + steps, len(load.work))
        most = max(
            (sums[b] - sums[a]) / ((b - a) * load.step_s + load.target_s)
            for a in range(start, stop)
            for b in range(a + 1, stop + 1)
        )
        needs.append(ceil(most - 1e-6))
    return needs
