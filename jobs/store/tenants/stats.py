"""Figures of each tenant: what it has, uses and may."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import text

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.tenants.tenants import TenantRow


@dataclass(frozen=True, slots=True)
class TenantStats(TenantRow):
    """Figures of one tenant; those of usage are of this month (UTC)."""

    open_jobs: int  #: jobs with slices to run
    queued_items: int  #: items without a result
    live_keys: int  #: keys that are valid now
    spent: Decimal  #: cost of this month's usage
    succeeded: int  #: items and calls that succeeded
    failed: int  #: items and calls that failed
    device_us: int  #: device time, µs


_MONTH = "CAST(date_trunc('month', now(), 'UTC') AS date)"

# A tenant may have jobs and no row of its own. Its name is found by a loose index scan (`leap`):
# one step of the index a tenant, however many jobs each has. Each LATERAL part then reads one index
# range of that tenant alone, and only for the tenants of the page. Written out for its recursion.
_PAGE = text(f"""
    WITH RECURSIVE leap (tenant_id) AS (
        (SELECT tenant_id FROM jobs
         WHERE tenant_id > :after AND (:tenant = '*' OR tenant_id = :tenant)
         ORDER BY tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.tenant_id FROM jobs j
                WHERE j.tenant_id > leap.tenant_id AND (:tenant = '*' OR j.tenant_id = :tenant)
                ORDER BY j.tenant_id LIMIT 1)
        FROM leap WHERE leap.tenant_id IS NOT NULL
    ), named AS (
        SELECT tenant_id FROM leap WHERE tenant_id IS NOT NULL
        UNION SELECT tenant_id FROM tenants
              WHERE tenant_id > :after AND (:tenant = '*' OR tenant_id = :tenant)
        ORDER BY tenant_id LIMIT :limit
    )
    SELECT n.tenant_id, coalesce(t.weight, 1) AS weight, t.soft_cap, t.hard_cap, t.created_at,
           t.erased_at, o.open_jobs, q.queued_items, k.live_keys, s.spent, u.succeeded, u.failed,
           u.device_us
    FROM named n LEFT JOIN tenants t USING (tenant_id),
    LATERAL (SELECT count(DISTINCT job_id) AS open_jobs FROM slices
             WHERE tenant_id = n.tenant_id AND finished_at IS NULL) AS o,
    LATERAL (SELECT coalesce(sum(stop - start - n_succeeded - n_failed - n_cancelled - n_expired),
                             0) AS queued_items
             FROM slices WHERE tenant_id = n.tenant_id AND finished_at IS NULL) AS q,
    LATERAL (SELECT count(*) AS live_keys FROM api_keys
             WHERE tenant_id = n.tenant_id AND revoked_at IS NULL
               AND (expires_at IS NULL OR expires_at > now())) AS k,
    LATERAL (SELECT coalesce(sum(amount), 0) AS spent FROM spend
             WHERE tenant_id = n.tenant_id AND month = {_MONTH}) AS s,
    LATERAL (SELECT coalesce(sum(succeeded), 0) AS succeeded, coalesce(sum(failed), 0) AS failed,
                    coalesce(sum(device_us), 0) AS device_us
             FROM usage WHERE tenant_id = n.tenant_id AND at >= {_MONTH}) AS u
    ORDER BY n.tenant_id
""")


def page(tx: Tx, tenant: str, *, after: str = "", limit: int) -> Sequence[TenantStats]:
    """Lists tenants by name. tenant: one, or EVERYBODY; after: the last one of the page before."""
    values = {"tenant": tenant, "after": after, "limit": limit}
    return queries.many(tx, TenantStats, _PAGE, values)
