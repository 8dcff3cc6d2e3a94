"""Spend of tenants in a month (UTC): its sum, the caps, and notices of them.

Transactions that write the ledger add to `spend`, so that it is never behind; keepers compact its
rows, so that there are never many.
"""

from sqlalchemy import text

from jobs.errors import SpendCap
from jobs.store.db import Tx

_ROWS = 100
"""Most rows of a tenant's month before they are compacted."""

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
    """Returns True if the hard cap of this month is reached."""
    return bool(tx.scalar(_REACHED, {"tenant": tenant}))


def check_cap(tx: Tx, tenant: str) -> None:
    """Raises SpendCap where the hard cap is reached: new work is refused, accepted work goes on."""
    if cap_reached(tx, tenant):
        raise SpendCap


# Replaces the rows of a month by their sum. Where two keepers do so at once, each row is deleted,
# and summed, by one of them (SKIP LOCKED).
_COMPACT = text("""
    WITH many AS (
        SELECT tenant_id, month FROM spend GROUP BY tenant_id, month HAVING count(*) > :most
        LIMIT 100
    ), rows AS (
        SELECT s.ctid AS place FROM spend s JOIN many USING (tenant_id, month)
        FOR UPDATE OF s SKIP LOCKED
    ), removed AS (
        DELETE FROM spend WHERE ctid = ANY (ARRAY(SELECT place FROM rows))
        RETURNING tenant_id, month, amount
    )
    INSERT INTO spend (tenant_id, month, amount)
    SELECT tenant_id, month, sum(amount) FROM removed GROUP BY tenant_id, month
""")


def compact(tx: Tx, most: int = _ROWS) -> int:
    """Makes one row of each month that has more than `most`; returns the number of months."""
    return tx.execute(_COMPACT, {"most": most}).rowcount


# Writes the webhook of each share of the soft cap once, with the row that says so: ON CONFLICT
# decides between keepers. A tenant that passes two shares at once gets the higher one.
_NOTIFY = text(f"""
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
    ), noted AS (
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
    JOIN (SELECT tenant_id, max(percent) AS percent FROM noted GROUP BY tenant_id) AS highest
         USING (tenant_id, percent)
""")

NOTIFIED_PERCENTS = (80, 100)
"""Percents of the soft cap at which the tenant is notified, each once a month."""


def notify(tx: Tx) -> int:
    """Writes webhooks of tenants that passed a share of their soft cap; returns their number."""
    return tx.execute(_NOTIFY, {"percents": list(NOTIFIED_PERCENTS)}).rowcount


_SET_URL = text("""
    INSERT INTO tenants (tenant_id, webhook_url) VALUES (:tenant, :url)
    ON CONFLICT (tenant_id) DO UPDATE SET webhook_url = excluded.webhook_url
    WHERE tenants.erased_at IS NULL -- a credential of one is good for a moment longer
""")
_URL = text("SELECT webhook_url FROM tenants WHERE tenant_id = :tenant")


def set_endpoint(tx: Tx, tenant: str, url: str | None) -> None:
    """Sets the tenant's own webhook endpoint; None: no endpoint."""
    tx.execute(_SET_URL, {"tenant": tenant, "url": url})


def endpoint(tx: Tx, tenant: str) -> str | None:
    """Returns the tenant's own webhook endpoint, or None."""
    found: str | None = tx.scalar(_URL, {"tenant": tenant})
    return found
