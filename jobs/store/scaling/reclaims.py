"""Reclaims of spot workers: an event each, and how many there were."""

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import func, select

from jobs.store.db import Tx
from jobs.store.queue import workers
from jobs.store.scaling import policies
from jobs.store.tables import workers as table

SILENCE = "silence"
"""Notice of a worker that was reclaimed without one."""

_RECENT = timedelta(hours=1)
_w = table.c


def record(tx: Tx, incarnation: int, by: str, left_s: float) -> None:
    """Records that a worker is reclaimed, once. by: notice; left_s: time until its machine goes."""
    if pool := workers.mark_reclaimed(tx, incarnation, by):
        reason = f"the machine of worker {incarnation} goes in {left_s:.0f} s, by {by}"
        _add_event(tx, pool, incarnation, reason)


def lose_silent(tx: Tx, silent_s: float) -> int:
    """Marks workers that have been silent for so long as lost, spot ones as reclaimed without
    notice; returns their number."""
    lost = workers.mark_lost(tx, silent_s)
    for one in lost:
        if one.unwarned:
            workers.mark_reclaimed(tx, one.incarnation, SILENCE)
            reason = f"worker {one.incarnation} fell silent, without notice"
            _add_event(tx, one.pool, one.incarnation, reason)
    return len(lost)


def recent(tx: Tx) -> Mapping[tuple[str, str], int]:
    """Counts the workers that were reclaimed in the last hour, by pool and notice."""
    ended_at = func.coalesce(_w.ended_at, _w.heartbeat_at)
    query = (
        select(_w.pool, _w.reclaimed_by, func.count())
        .where(_w.reclaimed_by.is_not(None), ended_at > func.now() - _RECENT)
        .group_by(_w.pool, _w.reclaimed_by)
    )
    return {(pool, by): count for pool, by, count in tx.execute(query)}


def _add_event(tx: Tx, pool: str, incarnation: int, reason: str) -> None:
    policies.delete_old_events(tx, pool)  # a spot pool may have no policy, with which others go
    policies.add_event(tx, pool, "reclaimed", None, reason, f"worker {incarnation}")
