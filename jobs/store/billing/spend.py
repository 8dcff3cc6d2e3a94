"""Spend of tenants in a month (UTC): its sum, the caps, and notices of them.

Transactions that write the ledger add to `spend`, so that it is never behind; keepers compact its
rows, so that there are never many.
"""

from sqlalchemy import Date, cast, exists, func, select, text
from sqlalchemy.dialects.postgresql import insert

from jobs.errors import SpendCap
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.tables import spend, tenants

_ROWS = 100
"""Most rows of a tenant's month before they are compacted."""

_THIS_MONTH = "CAST(date_trunc('month', now(), 'UTC') AS date)"

_month = cast(func.date_trunc("month", func.now(), "UTC"), Date)
_spent = select(func.coalesce(func.sum(spend.c.amount), 0)).where(
    spend.c.tenant_id == tenants.c.tenant_id, spend.c.month == _month
)
_REACHED = select(
    exists().where(queries.is_own(tenants), tenants.c.hard_cap <= _spent.scalar_subquery())
)


def cap_reached(tx: Tx, tenant: str) -> bool:
    """Returns True if the hard cap of this month is reached."""
    return bool(tx.scalar(_REACHED, {"tenant": tenant}))


def check_cap(tx: Tx, tenant: str) -> None:
    """Raises SpendCap where the hard cap is reached: new work is refused, accepted work goes on."""
    if cap_reached(tx, tenant):
        raise SpendCap


# Replaces the rows of a month by their sum. Where two keepers do so at once, each row is deleted,
# and summed, by one of them (SKIP LOCKED). Written out for the places of rows (ctid).
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
# decides between keepers. A tenant that passes two shares at once gets the higher one. Written out:
# three steps of one statement, of which each reads the one before.
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


def set_endpoint(tx: Tx, tenant: str, url: str | None) -> None:
    """Sets the tenant's own webhook endpoint; None: no endpoint."""
    new = insert(tenants).values(tenant_id=tenant, webhook_url=url)
    # A credential of an erased tenant is good for a moment longer.
    is_there = tenants.c.erased_at.is_(None)
    own = new.on_conflict_do_update(
        index_elements=["tenant_id"], set_={"webhook_url": url}, where=is_there
    )
    tx.execute(own)


def endpoint(tx: Tx, tenant: str) -> str | None:
    """Returns the tenant's own webhook endpoint, or None."""
    own = select(tenants.c.webhook_url).where(queries.is_own(tenants))
    found: str | None = tx.scalar(own, {"tenant": tenant})
    return found
