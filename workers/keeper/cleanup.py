"""Removal of deleted jobs at once, and of others at the end of their retention."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial

from jobs.blobs.payloads import Payloads
from jobs.blobs.store import BlobStore, open_store
from jobs.calls import redis as call_redis
from jobs.settings import Settings
from jobs.store import db, prepared
from jobs.store.backup.blob_lock import unless_kept
from jobs.store.conversations import rows as conversations
from jobs.store.db import Tx
from jobs.store.jobs import deletion, responses, retention
from jobs.store.jobs import files as stored_files
from jobs.store.monitoring import history
from jobs.store.registry import removal
from jobs.store.tenants import erasure
from jobs.usecases import tenant_files
from workers.keeper.service import Duty
from workers.keeper.tenant_cleanup import TenantCleanup
from workers.preparation.store import PreparedStore

_SECOND_S, _PREPARED_S, _MINUTE_S, _HOUR_S = 1.0, 5.0, 60.0, 3600.0


def duties(settings: Settings) -> Iterator[Duty]:
    """Yields the duties that this configuration asks for."""
    payloads = Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint)
    store = PreparedStore(call_redis.connect(settings.redis_url), payloads)
    yield Duty("erase rows", _SECOND_S, deletion.erase_rows)
    erase = partial(deletion.erase_payloads, erase=payloads.delete_job)
    yield Duty("erase payloads", _SECOND_S, unless_kept(erase))
    forget = partial(prepared.forget, delete=store.delete)
    yield Duty("forget prepared", _PREPARED_S, unless_kept(forget))
    yield Duty("erase tenants", _SECOND_S, erasure.continue_erasing)
    expire = partial(_expire_files, tenant_files.blob_store(settings))
    yield Duty("expire files", _SECOND_S, unless_kept(expire))
    yield Duty("expire responses", _MINUTE_S, responses.delete_expired)
    yield Duty("expire conversations", _MINUTE_S, conversations.delete_expired)
    yield Duty("erase traces", _MINUTE_S, TenantCleanup(settings).run_once)
    yield Duty("forget figures", _MINUTE_S, history.delete_old)
    if days := settings.keep_artifacts_days:
        files = open_store(settings.files, settings.s3_endpoint)
        grace = timedelta(days=days)
        yield Duty("mark artifacts", _MINUTE_S, lambda tx: removal.mark(tx, grace))
        yield Duty(
            "erase artifacts", _MINUTE_S, unless_kept(partial(removal.erase, delete=files.delete))
        )
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
            yield Duty(f"mark {kind}", _MINUTE_S, mark)
            yield Duty(f"drop {kind}", _MINUTE_S, drop)
            yield Duty(f"strays of {kind}", _HOUR_S, strays)
    if days := settings.keep_jobs_days:
        yield Duty("forget jobs", _MINUTE_S, _aged(days, retention.delete_jobs))
        yield Duty("forget launches", _MINUTE_S, _aged(days, retention.delete_launches))


def _expire_files(blobs: BlobStore, tx: Tx) -> int:
    """Deletes expired files. A crash in between leaves the row: the bytes are deleted again."""
    keys = stored_files.delete_expired(tx, db.now(tx))
    for key in keys:
        blobs.delete(key)
    return len(keys)


def _aged(days: float, act: Callable[[Tx, datetime], int]) -> Callable[[Tx], int]:
    return lambda tx: act(tx, db.now(tx) - timedelta(days=days))
