"""Retention: items, results and jobs each have their own age, counted from the end of the job.

First a job is marked as pruned: from then on nobody reads or retries it. A week whose jobs are all
marked or deleted is one DROP. What no DROP reaches, because it lies in a default partition or in
the week of a job that is kept, is deleted some rows at a time. The rows that describe a job go
last.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from sqlalchemy import text

from jobs.store import partitions
from jobs.store.db import Tx
from jobs.store.jobs import deletion

Kind = Literal["items", "results"]

_TABLES: dict[Kind, tuple[str, ...]] = {"items": ("items",), "results": ("results", "attempts")}
_UNPARTITIONED: dict[Kind, tuple[str, ...]] = {"items": (), "results": ("results_archive",)}
_OTHER: dict[Kind, Kind] = {"items": "results", "results": "items"}
_MOST_JOBS = 1000
_MOST_ITEMS = 20_000
_MOST_LAUNCHES = 10_000

# Ids are ordered by time, and nothing ends before it begins: no job from :low on is old enough. The
# payloads of a job of which both kinds are pruned are queued for erasure in the same statement.
_MARK = """
    WITH marked AS (
        UPDATE jobs SET {kind}_pruned = true
        WHERE id IN (SELECT id FROM jobs
                     WHERE NOT {kind}_pruned AND id < :low AND finished_at < :before
                     ORDER BY id LIMIT :most FOR UPDATE SKIP LOCKED)
        RETURNING id, tenant_id, total, {other}_pruned AS bare
    ), queued AS (
        INSERT INTO deletions (job_id, tenant_id, total, erased)
        SELECT id, tenant_id, total, total FROM marked WHERE bare
        ON CONFLICT DO NOTHING
    )
    SELECT count(*) FROM marked
"""


def mark_pruned(tx: Tx, before: datetime, kind: Kind) -> int:
    """Marks jobs that ended before then as pruned; returns their number."""
    values = {"low": partitions.lowest_id(before), "before": before, "most": _MOST_JOBS}
    count: int = tx.scalars(text(_MARK.format(kind=kind, other=_OTHER[kind])), values).one()
    return count


_ANY_KEPT = (
    "SELECT EXISTS (SELECT 1 FROM jobs WHERE id >= :low AND id < :high AND NOT {kind}_pruned)"
)


def drop_week(tx: Tx, before: datetime, kind: Kind) -> int:
    """Drops one partition whose jobs are all pruned or deleted; 0: there is none.

    No job comes into it meanwhile: its id would be older than the retention.
    """
    kept = text(_ANY_KEPT.format(kind=kind))
    for table in _TABLES[kind]:
        for name, since in partitions.weeks(tx, table, before):
            bounds = {
                "low": partitions.lowest_id(since),
                "high": partitions.lowest_id(since + partitions.WEEK),
            }
            if not tx.scalar(kept, bounds):
                partitions.drop(tx, name)
                return 1
    return 0


# The distinct jobs of a table, by a loose index scan: one step of the index each. Those that are
# neither pruned nor deleted are left.
_STRAY = """
    WITH RECURSIVE found AS (
        (SELECT job_id FROM {leaf} WHERE job_id < :low ORDER BY job_id LIMIT 1)
        UNION ALL
        SELECT (SELECT leaf.job_id FROM {leaf} AS leaf
                WHERE leaf.job_id > found.job_id AND leaf.job_id < :low
                ORDER BY leaf.job_id LIMIT 1)
        FROM found WHERE found.job_id IS NOT NULL
    )
    SELECT job_id FROM found
    WHERE job_id IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = job_id AND NOT {kind}_pruned)
    LIMIT :most
"""
_DELETE_SOME = """
    DELETE FROM {leaf} WHERE job_id = :job
       AND seq < (SELECT min(seq) FROM {leaf} WHERE job_id = :job) + :most
"""


def delete_strays(tx: Tx, before: datetime, kind: Kind) -> int:
    """Deletes some rows of pruned jobs that no DROP reaches soon; returns their number."""
    for leaf in _leaves(tx, kind, before):
        values = {"low": partitions.lowest_id(before), "most": _MOST_JOBS}
        jobs = tx.scalars(text(_STRAY.format(leaf=leaf, kind=kind)), values).all()
        if jobs:
            return _delete_rows(tx, leaf, jobs)
    return 0


def _leaves(tx: Tx, kind: Kind, before: datetime) -> Iterator[str]:
    """Yields tables without weeks, and weeks that should have been dropped a week ago."""
    yield from _UNPARTITIONED[kind]
    for table in _TABLES[kind]:
        yield f"{table}_rest"
        for name, _ in partitions.weeks(tx, table, before - partitions.WEEK):
            yield name


def _delete_rows(tx: Tx, leaf: str, jobs: Sequence[UUID]) -> int:
    deleted = 0
    for job in jobs:
        values = {"job": job, "most": _MOST_ITEMS - deleted}
        deleted += tx.execute(text(_DELETE_SOME.format(leaf=leaf)), values).rowcount
        if deleted >= _MOST_ITEMS:
            break
    return deleted


# The oldest pruned jobs that together have at most so many items: a running sum over them.
_DELETABLE = text("""
    SELECT id FROM (
        SELECT id, total, sum(total) OVER (ORDER BY id) AS filled
        FROM (SELECT id, total FROM jobs
              WHERE items_pruned AND results_pruned AND id < :low AND finished_at < :before
              ORDER BY id LIMIT :most) AS oldest
    ) AS summed
    WHERE filled <= :most_items OR filled = total
""")


def delete_jobs(tx: Tx, before: datetime) -> int:
    """Deletes jobs that ended before then and are pruned; returns their number."""
    values = {"low": partitions.lowest_id(before), "before": before, "most": _MOST_JOBS}
    found = tx.scalars(_DELETABLE, values | {"most_items": 50 * _MOST_ITEMS}).all()
    if found:
        deletion.delete_jobs(tx, deletion.lock_ended(tx, found))
    return len(found)


# Launches of one incarnation are numbered in order: the first rows of its range of the key are the
# oldest. LATERAL reads only the beginning of each range.
_DELETE_LAUNCHES = text("""
    DELETE FROM launches WHERE id = ANY(ARRAY(
        SELECT oldest.id
        FROM workers w,
             LATERAL (SELECT id, started_at FROM launches
                      WHERE id >= w.incarnation << 32 AND id < (w.incarnation + 1) << 32
                      ORDER BY id LIMIT :most) AS oldest
        WHERE oldest.started_at < :before LIMIT :most))
""")
_DELETE_WORKERS = text("""
    DELETE FROM workers w
    WHERE state IN ('stopped', 'lost') AND heartbeat_at < :before
      AND NOT EXISTS (SELECT 1 FROM launches
                      WHERE id >= w.incarnation << 32 AND id < (w.incarnation + 1) << 32)
""")


def delete_launches(tx: Tx, before: datetime) -> int:
    """Deletes launches from before then, and workers that ended before and have none left.

    Returns the number of launches.
    """
    values = {"before": before, "most": _MOST_LAUNCHES}
    launches = tx.execute(_DELETE_LAUNCHES, values).rowcount
    tx.execute(_DELETE_WORKERS, {"before": before})
    return launches
