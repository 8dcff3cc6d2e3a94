"""Tenants that have something to claim, and those of them that are served next.

Up to MOST_PRESENT are found anew at each claim. More of them, in one model, are found once for
many claims (table `next_tenants`): the list holds those that start first, and is made anew when
they have been served, or after `fair_share.LIST_S`. A tenant that comes meanwhile is found by its
newest job.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import text

from jobs.models.model import Model
from jobs.store.db import Tx

MOST_PRESENT = 250
"""Most tenants of a model that a claim looks for by itself, some 10 µs each."""

_LISTED = 1000  # tenants of a list: it costs each claim as much as it saves claims new lists
_NEWEST = 200  # jobs, of all models, whose tenants are present besides those of a list

# All statements of this file are written out: they are part of a claim. An ORDER BY with its LIMIT
# is one look at the index, whatever the statistics say; EXISTS may read the whole table.

_READY = """s.state = 'ready' AND NOT s.suspect AND s.not_before <= now()"""
_IN_ORDER = "ORDER BY s.tenant_id, s.priority DESC, s.due_at, s.job_id, s.start LIMIT 1"

PRESENT = f"""present (turn, tenant_id, n) AS (
        SELECT turn, (SELECT s.tenant_id FROM slices s
                      WHERE {_READY} AND s.model = w.model AND s.version = w.version
                      ORDER BY s.tenant_id LIMIT 1), 1
        FROM wanted w WHERE NOT w.listed
        UNION ALL
        SELECT turn, (SELECT s.tenant_id FROM slices s
                      WHERE {_READY} AND s.model = w.model AND s.version = w.version
                        AND s.tenant_id > p.tenant_id
                      ORDER BY s.tenant_id LIMIT 1), n + 1
        FROM present p JOIN wanted w USING (turn)
        WHERE p.tenant_id IS NOT NULL AND n <= {MOST_PRESENT}
    )"""
"""SQL: the tenants that have anything ready of the models `wanted`, by a loose index scan; `n`
counts those of a model. One more than MOST_PRESENT are found where there are too many."""

CROWDED = f"""(SELECT array_agg(turn) FROM present
               WHERE n > {MOST_PRESENT} AND tenant_id IS NOT NULL)"""
"""SQL: the turns of `wanted` whose tenants are too many for `present`."""

ALL = {"stays": "", "may_go": ""}
"""SQL, of a claim: nothing is left to others."""

INTERRUPTIBLE = {
    "stays": ", model || '@' || version = ANY(:stays) AS stays",
    "may_go": """AND NOT (st.stays AND (SELECT jobs.class <> ALL(:interruptible) FROM jobs
                                             WHERE jobs.id = slices.job_id))""",
}
"""SQL: of the models `stays` jobs are left to others whose class isn't one of `interruptible`."""

_NEWEST_JOBS = f"(SELECT tenant_id, model, version FROM jobs ORDER BY id DESC LIMIT {_NEWEST})"

WITH_LISTED = f"""{PRESENT}, listed AS (
        SELECT w.turn, w.model, w.version, l.tenants, l.until_ms
        FROM wanted w
        JOIN next_tenants l ON l.pool = :pool AND l.model = w.model AND l.version = w.version
    ), candidates AS (
        SELECT turn, tenant_id, CAST('infinity' AS float8) AS until_ms FROM present
        UNION ALL
        SELECT c.turn, (SELECT s.tenant_id FROM slices s
                        WHERE {_READY} AND s.model = c.model AND s.version = c.version
                          AND s.tenant_id = c.tenant_id {_IN_ORDER}), c.until_ms
        FROM (SELECT turn, model, version, unnest(tenants) AS tenant_id, until_ms FROM listed
              UNION
              SELECT turn, model, version, newest.tenant_id, until_ms
              FROM listed JOIN {_NEWEST_JOBS} AS newest USING (model, version)) AS c
    )"""
"""SQL: `candidates`, which also has the tenants of lists. What starts after `until_ms` has to wait
until the list is made anew: others may come first."""

_LIST = text(f"""
    WITH RECURSIVE present (tenant_id) AS (
        (SELECT s.tenant_id FROM slices s
         WHERE {_READY} AND s.model = :model AND s.version = :version
         ORDER BY s.tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT s.tenant_id FROM slices s
                WHERE {_READY} AND s.model = :model AND s.version = :version
                  AND s.tenant_id > p.tenant_id
                ORDER BY s.tenant_id LIMIT 1)
        FROM present p WHERE p.tenant_id IS NOT NULL
    ), timed AS (
        SELECT p.tenant_id, greatest(coalesce(t.time_ms, 0), :now_ms) AS from_ms,
               row_number() OVER (ORDER BY greatest(coalesce(t.time_ms, 0), :now_ms),
                                           coalesce(t.time_ms, 0), p.tenant_id) AS place
        FROM present p LEFT JOIN turns t ON t.pool = :pool AND t.tenant_id = p.tenant_id
        WHERE p.tenant_id IS NOT NULL
    )
    INSERT INTO next_tenants (pool, model, version, tenants, until_ms)
    SELECT :pool, :model, :version,
           array_agg(tenant_id ORDER BY place) FILTER (WHERE place <= {_LISTED}),
           coalesce(min(from_ms) FILTER (WHERE place > {_LISTED}), 'infinity')
    FROM timed HAVING count(*) > {MOST_PRESENT}
""")
_FORGET = text("""
    DELETE FROM next_tenants WHERE pool = :pool AND model = :model AND version = :version
""")


def list_next(tx: Tx, pool: str, now_ms: float, models: Iterable[Model]) -> None:
    """Lists anew who is next in these models; one with few tenants has no list. The caller has
    locked the pool."""
    for model in models:
        its = {"pool": pool, "model": model.name, "version": model.version}
        tx.execute(_FORGET, its)
        tx.execute(_LIST, its | {"now_ms": now_ms})


HELD = """held AS (
        SELECT * FROM unnest(CAST(:tenants AS text[]), CAST(:priorities AS int[]),
                             CAST(:dues AS timestamptz[])) AS h (tenant_id, priority, due_at)
    )"""
"""SQL: the tenants of the worker's leases, each with the last place among them."""

LEAST_SERVED = """(SELECT min(time_ms) FROM held JOIN turns USING (tenant_id)
                     WHERE pool = :pool)"""
"""SQL: virtual time of the tenant in `held` that was served least."""

_FIRST = f"""LATERAL (SELECT s.tenant_id, s.priority, s.due_at FROM slices s
                      WHERE {_READY} AND s.model = m.model AND s.version = m.version{{after}}
                      ORDER BY s.tenant_id, s.priority DESC, s.due_at LIMIT 1)"""

# Looks without the pool's lock, since most looks find nothing: at the first slice of each tenant
# alone, by a loose index scan; where there are lists, at those of the first in the list and of the
# newest jobs besides.
_ANY_KEPT_WAITING = text(f"""
    WITH RECURSIVE {HELD}, wanted AS (
        SELECT * FROM unnest(CAST(:models AS text[]), CAST(:versions AS text[]))
                          AS w (model, version)
    ), present AS (
        SELECT m.model, m.version, first.*, 1 AS n
        FROM wanted m, {_FIRST.format(after="")} AS first
        UNION ALL
        SELECT m.model, m.version, next.*, n + 1
        FROM present m, {_FIRST.format(after=" AND s.tenant_id > m.tenant_id")} AS next
        WHERE n < {MOST_PRESENT}
    ), others AS (
        SELECT model, version, unnest(tenants[1:{_NEWEST}]) AS tenant_id
        FROM next_tenants JOIN wanted USING (model, version) WHERE pool = :pool
        UNION
        SELECT model, version, tenant_id FROM {_NEWEST_JOBS} AS newest
        JOIN wanted USING (model, version)
        WHERE EXISTS (SELECT FROM next_tenants WHERE pool = :pool)
    ), first AS (
        SELECT tenant_id, priority, due_at FROM present
        UNION ALL
        SELECT first.*
        FROM others m, {_FIRST.format(after=" AND s.tenant_id = m.tenant_id")} AS first
    )
    SELECT EXISTS (
        SELECT FROM first p
        LEFT JOIN held h ON h.tenant_id = p.tenant_id
        LEFT JOIN turns t ON t.pool = :pool AND t.tenant_id = p.tenant_id
        WHERE (-p.priority, p.due_at) < (-h.priority, h.due_at)
           OR h.tenant_id IS NULL AND coalesce(t.time_ms, 0) < {LEAST_SERVED}
    )
""")


def any_kept_waiting(tx: Tx, wanted: Mapping[str, Any]) -> bool:
    """Returns True if a worker's leases keep any slice waiting. wanted: models, versions and pool,
    and the parameters of `held`."""
    return bool(tx.scalar(_ANY_KEPT_WAITING, wanted))
