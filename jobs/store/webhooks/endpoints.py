"""Circuit breakers of webhook endpoints: one for each that failed lately."""

from datetime import timedelta
from typing import Any

from sqlalchemy import case, delete, func
from sqlalchemy.dialects.postgresql import insert

from jobs.store.db import Tx
from jobs.store.tables import webhook_endpoints as table
from jobs.store.webhooks.deliveries import Endpoint

_FORGET_AFTER = timedelta(days=7)
_MOST_DOUBLINGS = 20


def close_breaker(tx: Tx, endpoint: Endpoint) -> None:
    """Closes an endpoint's breaker, and enables the endpoint again."""
    tenant, url = endpoint
    tx.execute(delete(table).where(table.c.tenant_id == tenant, table.c.url == url))


def record_failure(
    tx: Tx, endpoint: Endpoint, *, gone: bool, threshold: int, first_s: float, most_s: float
) -> None:
    """Counts a failure; from `threshold` in a row on the breaker is open.

    It is open for first_s at first, then twice as long each time, up to most_s. gone: the endpoint
    answered 410, and is disabled.
    """
    now, tenant, url = func.now(), *endpoint
    values: dict[str, Any] = {"tenant_id": tenant, "url": url, "failures": 1}
    values["open_until"] = now + timedelta(seconds=first_s) if threshold <= 1 else None
    new = insert(table).values(**values, disabled_at=now if gone else None)
    failures = table.c.failures + 1
    doublings = func.least(failures - threshold, _MOST_DOUBLINGS)
    wait = func.least(
        timedelta(seconds=most_s), timedelta(seconds=first_s) * func.power(2, doublings)
    )
    tx.execute(
        new.on_conflict_do_update(
            index_elements=["tenant_id", "url"],
            set_={
                "failures": failures,
                "failed_at": now,
                "disabled_at": func.coalesce(table.c.disabled_at, new.excluded.disabled_at),
                "open_until": case((failures >= threshold, now + wait)),
            },
        )
    )


def delete_stale(tx: Tx) -> int:
    """Deletes breakers that have had no failure for a week; returns their number."""
    old = table.c.failed_at < func.now() - _FORGET_AFTER
    return tx.execute(delete(table).where(table.c.disabled_at.is_(None), old)).rowcount
