"""Quotas of what a tenant, or one of its keys, may have queued and stored.

The sums are exact, and read all that the tenant has: 100,000 open jobs take some 40 ms. So a
process that finds much room admits a part of it without another look, for a second. Near the limit
every request sums up under a lock, which it holds until its commit.
"""

import threading
from collections.abc import Hashable, Sequence

from sqlalchemy import TextClause, text

from jobs import clock
from jobs.errors import QuotaExceeded, StorageFull
from jobs.identity import Limit
from jobs.limits import Bound, bounds_of
from jobs.store.db import Tx

_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('millrace.room:' || :tenant, 0))")

_LEFT = "s.stop - s.start - s.n_succeeded - s.n_failed - s.n_cancelled - s.n_expired"
_QUEUED = f"SELECT coalesce(sum({_LEFT}), 0) FROM {{slices}} AND s.finished_at IS NULL"
_DRAINED = """
    SELECT coalesce(sum(s.stop - s.start), 0) FROM {slices}
    AND s.finished_at > now() - make_interval(secs => :recent_s)
"""
_STORED = """
    SELECT coalesce(sum(CASE WHEN items_pruned THEN 0 ELSE input_bytes END
                        + CASE WHEN results_pruned THEN 0 ELSE output_bytes END), 0)
    FROM jobs WHERE tenant_id = :tenant AND NOT (items_pruned AND results_pruned)
"""
_IN_FILES = """
    SELECT coalesce(sum(bytes), 0) FROM files
    WHERE tenant_id = :tenant AND (expires_at IS NULL OR expires_at > now())
"""

_RECENT_S = 15.0  # over which the drain of the queue is measured
_UNKNOWN_S = 30.0  # wait where nothing drained
_MOST_S = 3600.0  # longest wait
_SPREAD = 0.25
"""Jitter, as a share of the wait: requests that were refused together come back apart."""


def check(
    tx: Tx, tenant: str, limits: Sequence[Limit], model: str, items: int, input_bytes: int,
    *, lock: bool = True,
) -> None:  # fmt: skip
    """Raises QuotaExceeded where a job of so many items and bytes (0: stored already) is too much.

    lock: keep others out until the transaction ends; without it, the room may be taken meanwhile.
    """
    wanted = [(bound, items) for bound in bounds_of(limits, "queued_items", model)]
    if input_bytes:
        wanted += [(bound, input_bytes) for bound in bounds_of(limits, "stored_bytes", model)]
    _check(tx, tenant, wanted, lock)


def check_file(
    tx: Tx, tenant: str, limits: Sequence[Limit], size: int, *, lock: bool = True
) -> None:
    """Raises QuotaExceeded where a file of so many bytes is too much; lock: as in `check`."""
    bounds = bounds_of(limits, "stored_bytes", "")
    _check(tx, tenant, [(bound, size) for bound in bounds], lock)


def _check(tx: Tx, tenant: str, wanted: Sequence[tuple[Bound, int]], lock: bool) -> None:
    unsure = [(bound, more) for bound, more in wanted if not _spare.covers(tx, tenant, bound, more)]
    if lock and unsure:
        tx.execute(_LOCK, {"tenant": tenant})
    for bound, more in unsure:
        is_queue = bound.name == "queued_items"
        has = _of(
            tx, tenant, bound, _over_slices(_QUEUED, bound) if is_queue else _over_jobs(bound)
        )
        if has + more > bound.most:
            raise (
                _queue_full(tx, tenant, bound, has, more)
                if is_queue
                else _storage_full(bound, has, more)
            )
        if lock:
            _spare.record(tx, tenant, bound, bound.most - has - more)


class _Spare:
    """Room that this process may give away without a look.

    It is a part of what the process saw, so that many processes together stay within the limit.
    """

    _PART = 1 / 50
    _FOR_S = 1.0
    _MOST_KNOWN = 4096

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[float, float]] = {}  # until when, how much

    def covers(self, tx: Tx, tenant: str, bound: Bound, more: int) -> bool:
        """Returns True if so much more fits, and takes it off."""
        place = tx.engine.url, tenant, bound
        with self._lock:
            until_s, spare = self._known.get(place, (0.0, 0.0))
            if more > spare or clock.monotonic() > until_s:
                return False
            self._known[place] = until_s, spare - more
            return True

    def record(self, tx: Tx, tenant: str, bound: Bound, left: float) -> None:
        """Records how much is left of a bound."""
        with self._lock:
            if len(self._known) > self._MOST_KNOWN:
                self._known.clear()
            until_s = clock.monotonic() + self._FOR_S
            self._known[tx.engine.url, tenant, bound] = until_s, left * self._PART


_spare = _Spare()


def _of(tx: Tx, tenant: str, bound: Bound, query: TextClause) -> int:
    values = {"tenant": tenant, "model": bound.model, "key": bound.key, "recent_s": _RECENT_S}
    names = query.compile().params
    return int(tx.scalar(query, {name: values[name] for name in names}) or 0)


def _over_slices(query: str, bound: Bound) -> TextClause:
    jobs = " JOIN jobs j ON j.id = s.job_id AND j.key_id = :key" if bound.key else ""
    model = " AND s.model = :model" if bound.model else ""
    return text(query.format(slices=f"slices s{jobs} WHERE s.tenant_id = :tenant{model}"))


def _over_jobs(bound: Bound) -> TextClause:
    key = " AND key_id = :key" if bound.key else ""
    if bound.model:
        return text(f"{_STORED} AND model = :model{key}")
    return text(f"SELECT ({_STORED}{key}) + ({_IN_FILES}{key})")


def _queue_full(tx: Tx, tenant: str, bound: Bound, has: int, items: int) -> QuotaExceeded:
    drained = _of(tx, tenant, bound, _over_slices(_DRAINED, bound))
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
