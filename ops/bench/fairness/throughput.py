"""The same load, handed in by one tenant and by ten."""

from collections.abc import Sequence

from ops.bench.effort import Effort
from ops.bench.fairness.tenants import Tenants
from ops.bench.harness import say

SINGLE = "single"
TEN = [f"ten-{n}" for n in range(1, 11)]

_ITEMS = 4000  # of each of ten jobs


def rounds(tenants: Tenants, effort: Effort) -> list[tuple[float, float]]:
    """Items a second (of one tenant, first in, first out; of ten, with fair shares), in turn."""
    items = int(effort.seconds(_ITEMS))
    return [
        (_items_per_s(tenants, [SINGLE] * len(TEN), items), _items_per_s(tenants, TEN, items))
        for _ in range(effort.rounds)
    ]


def _items_per_s(tenants: Tenants, whose: Sequence[str], items: int) -> float:
    """From the first job's creation to the last one's end. whose: a job of each."""
    since = tenants.now()
    for name in whose:
        stream = tenants.stream(name)
        stream.post("batchstring", (f"{name} {n}" for n in range(items)))
        stream.close()
    names = sorted(set(whose))
    tenants.await_end(names)
    total = items * len(whose)
    per_s = total / tenants.span_s(names, since, total)
    say(f"{len(names)} tenants: {per_s:.0f} items/s")
    return per_s
