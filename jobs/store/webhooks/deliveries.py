"""Deliveries of webhooks: written as jobs end, claimed by keepers, recorded; listed for tenants.

A claim pushes `due_at` forward by a lease and counts the try; the number of the try is the fence
of its record. Whoever dies in between is not missed: the delivery falls due again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import RowMapping, text

from jobs.store.db import Tx

# Beside the UPDATE that ends jobs, of which `closed` are the rows. Of OpenAI's batches, which can't
# name a URL, the tenant's own endpoint is told.
DELIVER = """
    INSERT INTO webhook_deliveries (tenant_id, job_id, generation, url, type, about)
    SELECT closed.tenant_id, id, generation, coalesce(closed.webhook_url, t.webhook_url),
           CASE dialect WHEN 'openai' THEN 'batch.' ELSE 'job.' END || state, to_jsonb(closed)
    FROM closed LEFT JOIN tenants t ON t.tenant_id = closed.tenant_id AND dialect = 'openai'
    WHERE coalesce(closed.webhook_url, t.webhook_url) IS NOT NULL
"""

Endpoint = tuple[str, str]
"""tenant, URL"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One try of a delivery. about: the job's row as it ended, or other data, as JSON; tries: this
    one included; job: that it is of, where it is of one; traceparent: that job's."""

    id: UUID
    tenant: str
    url: str
    type: str
    about: str
    tries: int
    job: UUID | None = None
    traceparent: str | None = None

    @property
    def endpoint(self) -> Endpoint:
        return self.tenant, self.url


# What waits for an endpoint whose breaker is open waits until it closes; what waits for a disabled
# one, or has waited for too long, ends.
_SET_ASIDE = text("""
    UPDATE webhook_deliveries AS d
    SET state = held.state, due_at = coalesce(held.open_until, d.due_at),
        last_error = coalesce(held.error, d.last_error)
    FROM (
        SELECT w.id, e.open_until,
               CASE WHEN e.disabled_at IS NOT NULL THEN 'disabled'
                    WHEN w.requested_at < now() - make_interval(secs => :patience_s) THEN 'failed'
                    ELSE 'pending' END AS state,
               CASE WHEN e.disabled_at IS NOT NULL THEN 'the endpoint answered 410 before'
                    END AS error
        FROM webhook_deliveries w JOIN webhook_endpoints e USING (tenant_id, url)
        WHERE w.state = 'pending' AND w.due_at <= now()
          AND (e.open_until > now() OR e.disabled_at IS NOT NULL)
        LIMIT 1000 FOR UPDATE OF w SKIP LOCKED
    ) AS held
    WHERE d.id = held.id
""")

_DUE = text("""
    SELECT id, tenant_id, url, type, CAST(about AS text), tries + 1, job_id,
           about ->> 'traceparent'
    FROM webhook_deliveries AS d
    WHERE state = 'pending' AND due_at <= now()
      AND NOT EXISTS (SELECT FROM webhook_endpoints e
                      WHERE e.tenant_id = d.tenant_id AND e.url = d.url
                        AND (e.open_until > now() OR e.disabled_at IS NOT NULL))
      AND NOT EXISTS (SELECT FROM unnest(CAST(:tenants AS text[]), CAST(:urls AS text[]))
                                      AS busy (tenant_id, url)
                      WHERE busy.tenant_id = d.tenant_id AND busy.url = d.url)
      AND tenant_id <> ALL(CAST(:full AS text[]))
    ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED
""")

# Of breakers that were open: whether their time is up, so that one delivery may try. Another keeper
# may have sent its own meanwhile; the lock shows it.
_BREAKERS = text("""
    SELECT e.tenant_id, e.url, e.open_until <= now() AS up
    FROM webhook_endpoints e
    JOIN unnest(CAST(:tenants AS text[]), CAST(:urls AS text[])) AS asked (tenant_id, url)
         USING (tenant_id, url)
    WHERE e.open_until IS NOT NULL
    ORDER BY e.tenant_id, e.url FOR UPDATE OF e
""")
_HOLD = text("""
    UPDATE webhook_endpoints e SET open_until = now() + make_interval(secs => :lease_s)
    FROM unnest(CAST(:tenants AS text[]), CAST(:urls AS text[])) AS probed (tenant_id, url)
    WHERE e.tenant_id = probed.tenant_id AND e.url = probed.url AND e.open_until IS NOT NULL
""")
_LEASE = text("""
    UPDATE webhook_deliveries
    SET tries = tries + 1, due_at = now() + make_interval(secs => :lease_s) WHERE id = ANY(:ids)
""")


def claim(
    tx: Tx, in_flight: Mapping[Endpoint, int], *, most: int, most_each: int, lease_s: float,
    patience_s: float,
) -> list[Delivery]:  # fmt: skip
    """Takes up to `most` due deliveries; of one endpoint no more than `most_each`, those in flight
    included, and a single one where its breaker was open; of one tenant no more than there is room
    left beside its own, however many endpoints it has. They are the caller's for lease_s."""
    tx.execute(_SET_ASIDE, {"patience_s": patience_s})
    busy = [endpoint for endpoint, count in in_flight.items() if count >= most_each]
    full = [tenant for tenant, count in _by_tenant(in_flight).items() if count >= most]
    values = {"limit": most, "full": full, **_columns(busy)}
    found = [Delivery(*row) for row in tx.execute(_DUE, values)]
    asked = _columns({delivery.endpoint for delivery in found})
    breakers = {(row[0], row[1]): row.up for row in tx.execute(_BREAKERS, asked)} if found else {}
    taken = _fair(found, in_flight, breakers, most, most_each)
    if taken:
        tx.execute(_HOLD, {"lease_s": lease_s, **_columns({found.endpoint for found in taken})})
        tx.execute(_LEASE, {"lease_s": lease_s, "ids": [delivery.id for delivery in taken]})
    return taken


def _fair(
    found: Sequence[Delivery],
    in_flight: Mapping[Endpoint, int],
    breakers: Mapping[Endpoint, bool],
    most: int,
    most_each: int,
) -> list[Delivery]:
    """breakers: of those that were open, whether one delivery may try."""
    count, of_tenant = Counter(in_flight), _by_tenant(in_flight)
    taken: list[Delivery] = []
    for delivery in found:
        endpoint = delivery.endpoint
        probe = breakers.get(endpoint)
        room = most_each if probe is None else int(probe)
        if count[endpoint] < room and of_tenant[delivery.tenant] < most - len(taken):
            count[endpoint] += 1
            of_tenant[delivery.tenant] += 1
            taken.append(delivery)
    return taken


def _by_tenant(in_flight: Mapping[Endpoint, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (tenant, _), count in in_flight.items():
        found[tenant] += count
    return found


def _columns(endpoints: Sequence[Endpoint] | set[Endpoint]) -> dict[str, list[str]]:
    found = sorted(endpoints)
    return {"tenants": [tenant for tenant, _ in found], "urls": [url for _, url in found]}


_RECORD = text("""
    UPDATE webhook_deliveries
    SET state = :state, due_at = now() + make_interval(secs => :wait_s),
        delivered_at = CASE WHEN :state = 'delivered' THEN now() END,
        last_status = :status, last_error = :error
    WHERE id = :id AND tries = :tries AND state = 'pending'
""")


def record(
    tx: Tx, delivery: Delivery, state: str, wait_s: float, status: int | None, error: str | None
) -> bool:
    """Writes how a try ended. False: it was not ours any more, and nothing was written."""
    values = {"id": delivery.id, "tries": delivery.tries, "state": state, "wait_s": wait_s}
    done = tx.execute(_RECORD, values | {"status": status, "error": error})
    return done.rowcount > 0


_OF_JOB = text("""
    SELECT * FROM webhook_deliveries WHERE tenant_id = :tenant AND job_id = :job
    ORDER BY generation DESC
""")
_AGAIN = text("""
    UPDATE webhook_deliveries
    SET state = 'pending', tries = 0, due_at = now(), requested_at = now(), delivered_at = NULL
    WHERE id = (SELECT id FROM webhook_deliveries WHERE tenant_id = :tenant AND job_id = :job
                ORDER BY generation DESC LIMIT 1)
    RETURNING *
""")


def of_job(tx: Tx, tenant: str, job: UUID) -> Sequence[RowMapping]:
    """A job's deliveries, the latest generation first."""
    return tx.execute(_OF_JOB, {"tenant": tenant, "job": job}).mappings().all()


_OF_TENANT = text("""
    SELECT * FROM webhook_deliveries WHERE tenant_id = :tenant AND job_id IS NULL
    ORDER BY created_at DESC LIMIT 20
""")


def of_tenant(tx: Tx, tenant: str) -> Sequence[RowMapping]:
    """Those that are of no job, the latest first."""
    return tx.execute(_OF_TENANT, {"tenant": tenant}).mappings().all()


# Without `about`, which is long, and of a list nobody reads.
_NEWEST = """
    SELECT d.id, d.tenant_id, d.job_id, d.generation, d.url, d.type, d.state, d.tries, d.due_at,
           d.created_at, d.delivered_at, d.last_status, d.last_error
    FROM webhook_deliveries d
    WHERE (:tenant = '*' OR d.tenant_id = :tenant)
      AND (CAST(:state AS text) IS NULL OR d.state = :state)
      AND (CAST(:url AS text) IS NULL OR d.url = :url)
      {after}
    ORDER BY d.created_at DESC, d.id DESC LIMIT :limit
"""
_BEYOND = """AND (d.created_at, d.id) < (SELECT created_at, id FROM webhook_deliveries
                                         WHERE id = :after)"""
_PAGE, _NEXT_PAGE = text(_NEWEST.format(after="")), text(_NEWEST.format(after=_BEYOND))


def page(
    tx: Tx, tenant: str, *, state: str | None, url: str | None, after: UUID | None, limit: int
) -> Sequence[RowMapping]:
    """Newest first; after: the id of the last one of the page before. tenant: one, or
    EVERYBODY."""
    values = {"tenant": tenant, "state": state, "url": url, "after": after, "limit": limit}
    return tx.execute(_NEXT_PAGE if after else _PAGE, values).mappings().all()


MOST_SUMMED = 10_000
"""Deliveries, the latest ones, that are summed up by endpoint."""

_BY_ENDPOINT = text(f"""
    SELECT d.*, e.failures, e.open_until, e.disabled_at
    FROM (SELECT tenant_id, url, count(*) AS deliveries,
                 count(*) FILTER (WHERE state = 'pending') AS pending,
                 count(*) FILTER (WHERE state IN ('failed', 'disabled')) AS failed,
                 max(delivered_at) AS delivered_at,
                 min(due_at) FILTER (WHERE state = 'pending') AS next_try_at,
                 (array_agg(last_error ORDER BY created_at DESC)
                      FILTER (WHERE last_error IS NOT NULL AND state <> 'delivered'))[1]
                     AS last_error
          FROM (SELECT * FROM webhook_deliveries WHERE :tenant = '*' OR tenant_id = :tenant
                ORDER BY created_at DESC, id DESC LIMIT {MOST_SUMMED}) AS latest
          GROUP BY tenant_id, url
          ORDER BY count(*) FILTER (WHERE state <> 'delivered') DESC, deliveries DESC
          LIMIT :limit) AS d
    LEFT JOIN webhook_endpoints e USING (tenant_id, url)
    ORDER BY d.pending + d.failed DESC, d.deliveries DESC, d.tenant_id, d.url
""")


def by_endpoint(tx: Tx, tenant: str, limit: int) -> Sequence[RowMapping]:
    """Endpoints of the latest deliveries, those with trouble first. tenant: one, or EVERYBODY."""
    return tx.execute(_BY_ENDPOINT, {"tenant": tenant, "limit": limit}).mappings().all()


def redeliver(tx: Tx, tenant: str, job: UUID) -> RowMapping | None:
    """Makes the job's latest delivery due now, with all its tries before it; None: it has none."""
    return tx.execute(_AGAIN, {"tenant": tenant, "job": job}).mappings().one_or_none()
