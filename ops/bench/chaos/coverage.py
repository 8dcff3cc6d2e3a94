"""Gaps of a run: one that injected nothing would find nothing either."""

from collections.abc import Collection, Iterator, Mapping

from ops.bench.chaos.clients.streams import StreamTally
from ops.bench.chaos.record import History
from ops.bench.chaos.verify import Findings

DURABLE: Mapping[str, str] = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "unlogged tables": "none",
}
"""Settings of PostgreSQL without which a lost commit would say nothing."""


def gaps(
    kinds: Collection[str],
    history: History,
    durability: Mapping[str, str],
    found: Findings,
    streams: StreamTally,
) -> Iterator[str]:
    """Describes what must have happened and has not. kinds: those of the planned faults."""
    for kind in sorted(set(kinds) - {kind for _, kind, _ in history.fired}):
        yield f"no fault of kind {kind} fired"
    for at_s, kind, proof in history.fired:
        if not proof:
            yield f"{kind} at {at_s:.1f} s has no proof"
    for name, value in DURABLE.items():
        if durability.get(name) != value:
            yield f"{name} is {durability.get(name)}, not {value}"
    if not found.jobs:
        yield "no job was acknowledged"
    if not found.read_while_running:
        yield "no result was read while its job ran"
    if streams.streams <= streams.errors.total():
        yield f"none of {streams.streams} streams came to its end"
