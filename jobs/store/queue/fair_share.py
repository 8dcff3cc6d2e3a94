"""Fair share: a virtual time for each tenant of a pool, in ms of device time by weight.

The pool's own time, under no name, is where the slices start that are claimed now: a tenant that
was idle starts there, and has saved nothing up.
"""

from collections.abc import Iterable, Mapping

from sqlalchemy import text

from jobs.store.db import Tx, lock

_POOL = ""  # no tenant has this name

LIST_S = 3.0
"""Age of a list of next tenants (jobs/store/queue/present.py) that is still used."""

_NOW = text(f"""
    SELECT (SELECT time_ms FROM turns WHERE pool = :pool AND tenant_id = '{_POOL}'),
           (SELECT json_object_agg(model || '@' || version,
                                   listed_at < now() - make_interval(secs => {LIST_S}))
            FROM next_tenants WHERE pool = :pool)
""")

# Rows are locked in the order of their names, by both statements. Written out, as all that a claim
# and a settlement do: arrays of rows in one round trip.
_CHARGE = text("""
    INSERT INTO turns AS t (pool, tenant_id, time_ms)
    SELECT :pool, tenant_id, :now_ms + cost_ms
    FROM unnest(CAST(:tenants AS text[]), CAST(:costs AS float8[])) AS c (tenant_id, cost_ms)
    ORDER BY tenant_id
    ON CONFLICT (pool, tenant_id) DO UPDATE
    SET time_ms = greatest(t.time_ms, :now_ms) + excluded.time_ms - :now_ms
""")
_CORRECT = text("""
    UPDATE turns
    SET time_ms = turns.time_ms + its.ms / coalesce((SELECT weight FROM tenants n
                                                     WHERE n.tenant_id = its.tenant_id), 1)
    FROM (SELECT t.tenant_id, c.ms FROM turns t
          JOIN unnest(CAST(:tenants AS text[]), CAST(:ms AS float8[])) AS c (tenant_id, ms)
               USING (tenant_id)
          WHERE t.pool = :pool ORDER BY t.tenant_id FOR UPDATE OF t) AS its
    WHERE turns.pool = :pool AND turns.tenant_id = its.tenant_id
""")


def lock_pool(tx: Tx, pool: str) -> tuple[float, Mapping[str, bool]]:
    """Locks a pool's claims until the transaction ends; returns its virtual time, ms, and the
    models (name@version) that have a list of next tenants. True: it is too old."""
    lock(tx, f"turns of {pool}")
    now_ms, lists = tx.execute(_NOW, {"pool": pool}).one()
    return now_ms or 0.0, lists or {}


def charge(
    tx: Tx, pool: str, now_ms: float, reached_ms: float, costs: Iterable[tuple[str, float]]
) -> None:
    """Advances tenants by what they claimed (ms by weight), and the pool to `reached_ms`."""
    sums = {_POOL: reached_ms - now_ms}
    for tenant, cost_ms in costs:
        sums[tenant] = sums.get(tenant, 0.0) + cost_ms
    values = {"pool": pool, "now_ms": now_ms}
    tx.execute(_CHARGE, values | {"tenants": list(sums), "costs": list(sums.values())})


def correct(tx: Tx, pool: str, used_ms: Mapping[str, float]) -> None:
    """Charges device time, ms, that tenants used beyond what they were charged at the claim."""
    if used_ms:
        values = {"tenants": list(used_ms), "ms": list(used_ms.values())}
        tx.execute(_CORRECT, values | {"pool": pool})
