"""Quotas of what a tenant, or one of its keys, may have queued and stored.

The sums are exact, and read all that the tenant has: 100,000 open jobs take some 40 ms. So a
process that finds much room admits a part of it without another look, for a second, or longer where
the sum took long. Near the limit every request sums up under a lock, which it holds until its
commit.
"""

import threading
from collections.abc import Hashable, Sequence
from datetime import timedelta

from sqlalchemy import URL, ColumnElement, case, func, select
from sqlalchemy import Engine as Database

from jobs import clock
from jobs.errors import QuotaExceeded, StorageFull
from jobs.identity import Limit
from jobs.limits import Bound, bounds_of
from jobs.store import db, queries
from jobs.store.db import Tx
from jobs.store.tables import files, jobs, slices

_RECENT_S = 15.0  # over which the drain of the queue is measured
_UNKNOWN_S = 30.0  # wait where nothing drained
_MOST_S = 3600.0  # longest wait
_SPREAD = 0.25
"""Jitter, as a share of the wait: requests that were refused together come back apart."""


def check(
    tx: Tx, tenant: str, limits: Sequence[Limit], model: str, items: int, input_bytes: int,
    *, lock: bool = True,
) -> None:  # fmt: skip
    """Raises QuotaExceeded where so many more items and bytes are too much; 0: none are added.

    lock: keep others out until the transaction ends; without it, the room may be taken meanwhile.
    """
    _check(tx, tenant, _wanted(limits, model, items, input_bytes), lock)


def reserve(
    database: Database, tenant: str, limits: Sequence[Limit], model: str, items: int,
    input_bytes: int,
) -> bool:  # fmt: skip
    """Takes room for so many more items and bytes without a look at the database; returns False
    where this process knows of too little: `check` decides then."""
    return all(
        _spare.covers(database.url, tenant, bound, more)
        for bound, more in _wanted(limits, model, items, input_bytes)
    )


def _wanted(
    limits: Sequence[Limit], model: str, items: int, input_bytes: int
) -> list[tuple[Bound, int]]:
    wanted = []
    if items:
        wanted += [(bound, items) for bound in bounds_of(limits, "queued_items", model)]
    if input_bytes:
        wanted += [(bound, input_bytes) for bound in bounds_of(limits, "stored_bytes", model)]
    return wanted


def check_file(
    tx: Tx, tenant: str, limits: Sequence[Limit], size: int, *, lock: bool = True
) -> None:
    """Raises QuotaExceeded where a file of so many bytes is too much; lock: as in `check`."""
    bounds = bounds_of(limits, "stored_bytes", "")
    _check(tx, tenant, [(bound, size) for bound in bounds], lock)


def _check(tx: Tx, tenant: str, wanted: Sequence[tuple[Bound, int]], lock: bool) -> None:
    url = tx.engine.url
    unsure = [
        (bound, more) for bound, more in wanted if not _spare.covers(url, tenant, bound, more)
    ]
    if lock and unsure:
        db.lock(tx, f"millrace.room:{tenant}")
    for bound, more in unsure:
        since_s, is_queue = clock.monotonic(), bound.name == "queued_items"
        has = _queued(tx, tenant, bound) if is_queue else _stored(tx, tenant, bound)
        if has + more > bound.most:
            if is_queue:
                raise _queue_full(tx, tenant, bound, has, more)
            raise _storage_full(bound, has, more)
        if lock:
            took_s = clock.monotonic() - since_s
            _spare.record(tx, tenant, bound, bound.most - has - more, took_s)


class _Spare:
    """Room that this process may give away without a look.

    It is a part of what the process saw, so that many processes together stay within the limit.
    """

    _PART = 1 / 50
    _FOR_S, _LONGEST_S, _DURATIONS = 1.0, 30.0, 50  # validity: so many durations of the sum
    _MOST_KNOWN = 4096

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[float, float]] = {}  # until when, how much

    def covers(self, url: URL, tenant: str, bound: Bound, more: int) -> bool:
        """Returns True if so much more fits, and takes it off."""
        place = url, tenant, bound
        with self._lock:
            until_s, spare = self._known.get(place, (0.0, 0.0))
            if more > spare or clock.monotonic() > until_s:
                return False
            self._known[place] = until_s, spare - more
            return True

    def record(self, tx: Tx, tenant: str, bound: Bound, left: float, took_s: float) -> None:
        """Records how much is left of a bound, by a sum that took so long."""
        with self._lock:
            if len(self._known) > self._MOST_KNOWN:
                self._known.clear()
            for_s = min(max(self._FOR_S, self._DURATIONS * took_s), self._LONGEST_S)
            place = tx.engine.url, tenant, bound
            self._known[place] = clock.monotonic() + for_s, left * self._PART


_spare = _Spare()


def _sum(sizes: ColumnElement[int]) -> ColumnElement[int]:
    return func.coalesce(func.sum(sizes), 0)


def _queued(tx: Tx, tenant: str, bound: Bound) -> int:
    """Number of items without a result."""
    is_open = slices.c.finished_at.is_(None)
    return _over_slices(tx, tenant, bound, queries.unfinished(slices), is_open)


def _drained(tx: Tx, tenant: str, bound: Bound) -> int:
    """Number of items in slices that ended in the last _RECENT_S."""
    recently = slices.c.finished_at > func.now() - timedelta(seconds=_RECENT_S)
    return _over_slices(tx, tenant, bound, slices.c.stop - slices.c.start, recently)


def _over_slices(
    tx: Tx, tenant: str, bound: Bound, size: ColumnElement[int], which: ColumnElement[bool]
) -> int:
    query = select(_sum(size)).where(
        queries.equal(slices, tenant_id=tenant, model=bound.model), which
    )
    if bound.key:
        query = query.join(jobs, jobs.c.id == slices.c.job_id).where(jobs.c.key_id == bound.key)
    return int(tx.scalars(query).one())


def _stored(tx: Tx, tenant: str, bound: Bound) -> int:
    """Number of bytes of jobs and, where the bound is for all models, of files."""
    j, f = jobs.c, files.c
    inputs = case((j.items_pruned, 0), else_=j.input_bytes)
    outputs = case((j.results_pruned, 0), else_=j.output_bytes)
    query = select(_sum(inputs + outputs)).where(
        queries.equal(jobs, tenant_id=tenant, model=bound.model, key_id=bound.key),
        ~(j.items_pruned & j.results_pruned),
    )
    if not bound.model:
        own = queries.equal(files, tenant_id=tenant, key_id=bound.key)
        in_files = select(_sum(f.bytes)).where(own, queries.is_live(files))
        query = select(query.scalar_subquery() + in_files.scalar_subquery())
    return int(tx.scalars(query).one())


def _queue_full(tx: Tx, tenant: str, bound: Bound, has: int, items: int) -> QuotaExceeded:
    drained = _drained(tx, tenant, bound)
    over = has + items - bound.most
    wait_s = over / (drained / _RECENT_S) if drained else _UNKNOWN_S
    wait_s = min(wait_s, _MOST_S)
    return QuotaExceeded(
        f"{has} items{_model(bound)} wait for their results, and {bound.whose} may have "
        f"{bound.most:g}: there is no room for {items} more",
        bound=bound,
        left=max(0, int(bound.most) - has),
        retry_after_s=wait_s + clock.jitter(_SPREAD * wait_s),
    )


def _storage_full(bound: Bound, has: int, input_bytes: int) -> QuotaExceeded:
    return StorageFull(
        f"jobs{_model(bound) or ' and files'} hold {has} bytes, and {bound.whose} may have "
        f"{bound.most:.0f}: there is no room for {input_bytes} more. Delete jobs that have ended "
        "(DELETE /jobs/{id}) or files (DELETE /v1/files/{id}), or wait until their time is over",
        bound=bound,
        left=max(0, int(bound.most) - has),
    )


def _model(bound: Bound) -> str:
    return f" of {bound.model}" if bound.model else ""
