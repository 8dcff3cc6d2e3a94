"""Invariants of the store, all in one query: a test may ask for them after every step."""

from sqlalchemy import Engine, text

from jobs.store.monitoring.invariants import INVARIANTS, snapshot

_BROKEN = text(
    " UNION ALL ".join(
        f"(SELECT '{one.name}' FROM ({one.sql}) AS broken (job, what) LIMIT 1)"
        for one in INVARIANTS
    )
)


def broken_invariants(database: Engine) -> set[str]:
    with snapshot(database) as tx:
        return set(tx.scalars(_BROKEN))
