"""What the keeper removes: deleted jobs at once, others at the end of their retention."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial

from jobs import clock
from jobs.blobs.payloads import Payloads
from jobs.blobs.store import BlobStore
from jobs.settings import Settings
from jobs.store.db import Tx
from jobs.store.jobs import deletion, retention
from jobs.store.jobs import files as stored_files
from jobs.store.tenants import erasure
from jobs.usecases import tenant_files
from workers.keeper.tenant_cleanup import TenantCleanup

Duty = tuple[str, float, Callable[[Tx], int]]
"""name, seconds between two turns, what is done in a transaction: repeated until it returns 0."""

_SOON_S, _NOW_AND_THEN_S, _SELDOM_S = 1.0, 60.0, 3600.0


def duties(settings: Settings) -> Iterator[Duty]:
    """Everything that this configuration removes."""
    yield "erase rows", _SOON_S, deletion.erase_rows
    payloads = Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint)
    yield "erase payloads", _SOON_S, lambda tx: deletion.erase_payloads(tx, payloads.delete_job)
    yield "erase tenants", _SOON_S, erasure.continue_erasing
    yield "expire files", _SOON_S, partial(_expire_files, tenant_files.blob_store(settings))
    yield "erase traces", _NOW_AND_THEN_S, TenantCleanup(settings).run_once
    ages: dict[retention.Kind, float] = {
        "items": settings.keep_items_days,
        "results": settings.keep_results_days,
    }
    for kind, days in ages.items():
        if days:
            mark, drop, strays = (
                _aged(days, partial(act, kind=kind))
                for act in (retention.mark_pruned, retention.drop_week, retention.delete_strays)
            )
            yield f"mark {kind}", _NOW_AND_THEN_S, mark
            yield f"drop {kind}", _NOW_AND_THEN_S, drop
            yield f"strays of {kind}", _SELDOM_S, strays
    if days := settings.keep_jobs_days:
        yield "forget jobs", _NOW_AND_THEN_S, _aged(days, retention.delete_jobs)
        yield "forget launches", _NOW_AND_THEN_S, _aged(days, retention.delete_launches)


def _expire_files(blobs: BlobStore, tx: Tx) -> int:
    """Whoever dies in between leaves a row that has expired: its bytes are deleted once more."""
    keys = stored_files.delete_expired(tx, clock.now())
    for key in keys:
        blobs.delete(key)
    return len(keys)


def _aged(days: float, act: Callable[[Tx, datetime], int]) -> Callable[[Tx], int]:
    return lambda tx: act(tx, clock.now() - timedelta(days=days))
