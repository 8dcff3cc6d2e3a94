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

from sqlalchemy import ColumnElement, delete, exists, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from jobs import ids
from jobs.store import partitions, queries
from jobs.store.db import Tx
from jobs.store.jobs import deletion
from jobs.store.queue.workers import launches_of
from jobs.store.tables import deletions, jobs, workers

Kind = Literal["items", "results"]

_TABLES: dict[Kind, tuple[str, ...]] = {"items": ("items",), "results": ("results", "attempts")}
_UNPARTITIONED: dict[Kind, tuple[str, ...]] = {"items": (), "results": ("results_archive",)}
_OTHER: dict[Kind, Kind] = {"items": "results", "results": "items"}
_MOST_JOBS = 1000
_MOST_ITEMS = 20_000
_MOST_LAUNCHES = 10_000


def mark_pruned(tx: Tx, before: datetime, kind: Kind) -> int:
    """Marks jobs that ended before then as pruned; returns their number.

    The payloads of a job of which both kinds are pruned are queued for erasure in the same
    statement.
    """
    pruned, other = jobs.c[f"{kind}_pruned"], jobs.c[f"{_OTHER[kind]}_pruned"]
    some = select(jobs.c.id).where(~pruned, *_ended(before)).order_by(jobs.c.id).limit(_MOST_JOBS)
    marked = (
        update(jobs)
        .where(jobs.c.id.in_(some.with_for_update(skip_locked=True)))
        .values({pruned: True})
        .returning(jobs.c.id, jobs.c.tenant_id, jobs.c.total, other.label("bare"))
        .cte("marked")
    )
    m = marked.c
    queued = insert(deletions).from_select(
        ["job_id", "tenant_id", "total", "erased"],
        select(m.id, m.tenant_id, m.total, m.total).where(m.bare),
        include_defaults=False,
    )
    count = select(func.count()).select_from(marked)
    return tx.scalars(count.add_cte(queued.on_conflict_do_nothing().cte("queued"))).one()


def _ended(before: datetime) -> Sequence[ColumnElement[bool]]:
    """Filters by jobs that ended before then.

    Ids are ordered by time, and nothing ends before it begins: no later id is old enough.
    """
    return jobs.c.id < ids.earliest(before), jobs.c.finished_at < before


def drop_week(tx: Tx, before: datetime, kind: Kind) -> int:
    """Drops one partition whose jobs are all pruned or deleted; 0: there is none.

    No job comes into it meanwhile: its id would be older than the retention.
    """
    for table in _TABLES[kind]:
        for name, since in partitions.weeks(tx, table, before):
            low, high = map(ids.earliest, (since, since + partitions.WEEK))
            kept = exists().where(jobs.c.id >= low, jobs.c.id < high, ~jobs.c[f"{kind}_pruned"])
            if not tx.scalar(select(kept)):
                partitions.drop(tx, name)
                return 1
    return 0


# The distinct jobs of a table, by a loose index scan: one step of the index each. Those that are
# neither pruned nor deleted are left. Written out, since the leaf is a parameter that no table
# describes.
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


def delete_strays(tx: Tx, before: datetime, kind: Kind) -> int:
    """Deletes some rows of pruned jobs that no DROP reaches soon; returns their number."""
    for leaf in _leaves(tx, kind, before):
        values = {"low": ids.earliest(before), "most": _MOST_JOBS}
        strays = tx.scalars(text(_STRAY.format(leaf=leaf, kind=kind)), values).all()
        if strays:
            return _delete_rows(tx, leaf, strays)
    return 0


def _leaves(tx: Tx, kind: Kind, before: datetime) -> Iterator[str]:
    """Yields tables without weeks, and weeks that should have been dropped a week ago."""
    yield from _UNPARTITIONED[kind]
    for table in _TABLES[kind]:
        yield f"{table}_rest"
        for name, _ in partitions.weeks(tx, table, before - partitions.WEEK):
            yield name


def _delete_rows(tx: Tx, leaf: str, jobs: Sequence[UUID]) -> int:
    rows = partitions.described(leaf)
    first = rows.alias("first")
    deleted = 0
    for job in jobs:
        since = select(func.min(first.c.seq)).where(first.c.job_id == job).scalar_subquery()
        some = rows.c.seq < since + (_MOST_ITEMS - deleted)
        deleted += tx.execute(delete(rows).where(rows.c.job_id == job, some)).rowcount
        if deleted >= _MOST_ITEMS:
            break
    return deleted


def delete_jobs(tx: Tx, before: datetime) -> int:
    """Deletes jobs that ended before then and are pruned; returns their number."""
    pruned = jobs.c.items_pruned, jobs.c.results_pruned, *_ended(before)
    oldest = queries.oldest_jobs(*pruned, most=_MOST_JOBS, most_items=50 * _MOST_ITEMS)
    found = tx.scalars(oldest).all()
    if found:
        deletion.delete_jobs(tx, deletion.lock_ended(tx, found))
    return len(found)


# Launches of one incarnation are numbered in order: the first rows of its range of the key are the
# oldest. LATERAL reads only the beginning of each range. Written out: the shift of a column and the
# array that keeps the look-ups apart read worse in Core.
_DELETE_LAUNCHES = text("""
    DELETE FROM launches WHERE id = ANY(ARRAY(
        SELECT oldest.id
        FROM workers w,
             LATERAL (SELECT id, started_at FROM launches
                      WHERE id >= w.incarnation << 32 AND id < (w.incarnation + 1) << 32
                      ORDER BY id LIMIT :most) AS oldest
        WHERE oldest.started_at < :before LIMIT :most))
""")


def delete_launches(tx: Tx, before: datetime) -> int:
    """Deletes launches from before then, and workers that ended before and have none left.

    Returns the number of launches.
    """
    values = {"before": before, "most": _MOST_LAUNCHES}
    deleted = tx.execute(_DELETE_LAUNCHES, values).rowcount
    w = workers.c
    its = launches_of(w.incarnation)
    seen_at = func.greatest(w.heartbeat_at, w.watched_at)  # watched for as long as quarantined
    ended = w.state.in_(("stopped", "lost", "quarantined")), seen_at < before
    tx.execute(delete(workers).where(*ended, ~exists().where(its)))
    return deleted
