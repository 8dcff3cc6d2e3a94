"""What tenants spend in a month (UTC): its sum, the caps, and who was told.

`spend` is added to in the transactions that write the ledger, so that it is never behind it; its
rows are summed up now and then, so that there are never many.
"""

from sqlalchemy import text

from jobs.errors import SpendCap
from jobs.store.db import Tx

_ROWS = 100
"""Of a tenant's month, before they are summed up."""

_THIS_MONTH = "CAST(date_trunc('month', now(), 'UTC') AS date)"

_REACHED = text(f"""
    SELECT EXISTS (
        SELECT FROM tenants t
        WHERE t.tenant_id = :tenant
          AND t.hard_cap <= (SELECT coalesce(sum(amount), 0) FROM spend s
                             WHERE s.tenant_id = t.tenant_id AND s.month = {_THIS_MONTH})
    )
""")


def cap_reached(tx: Tx, tenant: str) -> bool:
    """Whether the hard cap of this month is reached."""
    return bool(tx.scalar(_REACHED, {"tenant": tenant}))


def check_cap(tx: Tx, tenant: str) -> None:
    """Raises SpendCap where nothing new is taken in any more. What was taken in goes on."""
    if cap_reached(tx, tenant):
        raise SpendCap


# Two keepers at once: each row is deleted, and summed, by one of them.
_SUM_UP = text("""
    WITH many AS (
        SELECT tenant_id, month FROM spend GROUP BY tenant_id, month HAVING count(*) > :most
        LIMIT 100
    ), rows AS (
        SELECT s.ctid AS place FROM spend s JOIN many USING (tenant_id, month)
        FOR UPDATE OF s SKIP LOCKED
    ), gone AS (
        DELETE FROM spend WHERE ctid = ANY (ARRAY(SELECT place FROM rows))
        RETURNING tenant_id, month, amount
    )
    INSERT INTO spend (tenant_id, month, amount)
    SELECT tenant_id, month, sum(amount) FROM gone GROUP BY tenant_id, month
""")


def compact(tx: Tx, most: int = _ROWS) -> int:
    """Makes one row of those of each month that has more than `most`; returns how many months."""
    return tx.execute(_SUM_UP, {"most": most}).rowcount


# Whoever passes two of the shares at once is told of the higher one.
_TELL = text(f"""
    WITH due AS (
        SELECT t.tenant_id, t.webhook_url, s.month, p.percent, s.amount, t.soft_cap, t.hard_cap
        FROM tenants t
        JOIN (SELECT tenant_id, month, sum(amount) AS amount FROM spend
              WHERE month = {_THIS_MONTH} GROUP BY tenant_id, month) AS s USING (tenant_id)
        CROSS JOIN unnest(CAST(:percents AS int[])) AS p (percent)
        WHERE t.webhook_url IS NOT NULL AND s.amount * 100 >= t.soft_cap * p.percent
          AND NOT EXISTS (SELECT FROM spend_told d
                          WHERE d.tenant_id = t.tenant_id AND d.month = s.month
                            AND d.percent = p.percent)
    ), told AS (
        INSERT INTO spend_told (tenant_id, month, percent)
        SELECT tenant_id, month, percent FROM due ORDER BY tenant_id, month, percent
        ON CONFLICT DO NOTHING
        RETURNING tenant_id, percent
    )
    INSERT INTO webhook_deliveries (tenant_id, url, type, about)
    SELECT tenant_id, webhook_url, 'usage.threshold',
           jsonb_build_object(
               'at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
               'month', to_char(month, 'YYYY-MM'), 'percent', percent,
               'amount', CAST(trim_scale(amount) AS text),
               'soft_cap', CAST(trim_scale(soft_cap) AS text),
               'hard_cap', CAST(trim_scale(hard_cap) AS text))
    FROM due
    JOIN (SELECT tenant_id, max(percent) AS percent FROM told GROUP BY tenant_id) AS highest
         USING (tenant_id, percent)
""")

NOTIFIED_PERCENTS = (80, 100)
"""Percents of the soft cap, each told once a month."""


def notify(tx: Tx) -> int:
    """Writes the webhooks of tenants that passed a share of their soft cap; returns how many."""
    return tx.execute(_TELL, {"percents": list(NOTIFIED_PERCENTS)}).rowcount


_SET_URL = text("""
    INSERT INTO tenants (tenant_id, webhook_url) VALUES (:tenant, :url)
    ON CONFLICT (tenant_id) DO UPDATE SET webhook_url = excluded.webhook_url
    WHERE tenants.erased_at IS NULL -- a credential of one is good for a moment longer
""")
_URL = text("SELECT webhook_url FROM tenants WHERE tenant_id = :tenant")


def set_endpoint(tx: Tx, tenant: str, url: str | None) -> None:
    """Where the tenant itself is told; None: nowhere."""
    tx.execute(_SET_URL, {"tenant": tenant, "url": url})


def endpoint(tx: Tx, tenant: str) -> str | None:
    found: str | None = tx.scalar(_URL, {"tenant": tenant})
    return found
