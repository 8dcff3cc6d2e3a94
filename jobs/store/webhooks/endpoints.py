"""Endpoints of webhooks that give trouble: one breaker each. One that works has no row."""

from sqlalchemy import text

from jobs.store.db import Tx
from jobs.store.webhooks.deliveries import Endpoint

_FORGIVE = text("DELETE FROM webhook_endpoints WHERE tenant_id = :tenant AND url = :url")


def close_breaker(tx: Tx, endpoint: Endpoint) -> None:
    """It answered, or its tenant says that it will: the breaker is closed, nothing is disabled."""
    tx.execute(_FORGIVE, {"tenant": endpoint[0], "url": endpoint[1]})


_BLAME = text("""
    INSERT INTO webhook_endpoints AS e (tenant_id, url, failures, open_until, disabled_at)
    VALUES (:tenant, :url, 1,
            CASE WHEN :threshold <= 1 THEN now() + make_interval(secs => :first_s) END,
            CASE WHEN :gone THEN now() END)
    ON CONFLICT (tenant_id, url) DO UPDATE
    SET failures = e.failures + 1, failed_at = now(),
        disabled_at = coalesce(e.disabled_at, excluded.disabled_at),
        open_until = CASE WHEN e.failures + 1 >= :threshold THEN now() + make_interval(
            secs => least(:most_s, :first_s * 2 ^ least(e.failures + 1 - :threshold, 20))) END
""")


def record_failure(
    tx: Tx, endpoint: Endpoint, *, gone: bool, threshold: int, first_s: float, most_s: float
) -> None:
    """Counts a failure. From `threshold` in a row its breaker is open, first for first_s, then
    twice as long each time, up to most_s. gone: it wants nothing ever again."""
    values = {"tenant": endpoint[0], "url": endpoint[1], "gone": gone, "threshold": threshold}
    tx.execute(_BLAME, values | {"first_s": first_s, "most_s": most_s})


_FORGET = text("""
    DELETE FROM webhook_endpoints
    WHERE disabled_at IS NULL AND failed_at < now() - interval '7 days'
""")


def delete_stale(tx: Tx) -> int:
    """Drops breakers that nothing has failed at for a week; returns their number."""
    return tx.execute(_FORGET).rowcount
