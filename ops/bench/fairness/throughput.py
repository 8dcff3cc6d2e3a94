"""The same load, handed in by one tenant and by ten."""

from collections.abc import Sequence

from ops.bench.fairness.tenants import Tenants
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale

SINGLE = "single"
TEN = [f"ten-{n}" for n in range(1, 11)]

_JOB_ITEMS = (7_500, 3_000, 1_200, 300)  # ten jobs of each: what is left at the end is little


def rounds(tenants: Tenants, effort: Scale) -> list[tuple[float, float]]:
    """Items a second (of one tenant, first in, first out; of ten, with fair shares), in turn."""
    sizes = [int(effort.seconds(items)) for items in _JOB_ITEMS]
    return [
        (_items_per_s(tenants, [SINGLE] * len(TEN), sizes), _items_per_s(tenants, TEN, sizes))
        for _ in range(effort.rounds)
    ]


def _items_per_s(tenants: Tenants, whose: Sequence[str], sizes: Sequence[int]) -> float:
    """From the first job's creation to the last one's end. whose: a job of each size for each."""
    since, streams = tenants.now(), [tenants.stream(name) for name in whose]
    for items in sizes:
        for stream in streams:
            stream.post("batchstring", (f"item {n}" for n in range(items)))
    for stream in streams:
        stream.close()
    names, total = sorted(set(whose)), sum(sizes) * len(whose)
    tenants.await_end(names)
    per_s = total / tenants.span_s(names, since, total)
    say(f"{len(names)} tenants: {per_s:.0f} items/s")
    return per_s
