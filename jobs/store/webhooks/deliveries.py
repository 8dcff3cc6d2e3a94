"""Deliveries of webhooks: written as jobs end, claimed by keepers, recorded, listed for tenants.

A claim pushes `due_at` forward by a lease and counts the try. The fence of its record is the number
of the try with the time at which the tries began: a redelivery counts them anew. A delivery whose
sender died falls due again.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Text,
    cast,
    exists,
    func,
    null,
    or_,
    select,
    text,
    tuple_,
    type_coerce,
    update,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by

from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.tables import webhook_deliveries as table
from jobs.store.tables import webhook_endpoints

# Part of the statements that end jobs, which are written out and name their rows `closed`: a job's
# webhook is written with its end, or not at all. OpenAI's batches can't name a URL: theirs go to
# the tenant's endpoint.
DELIVER = """
    INSERT INTO webhook_deliveries (tenant_id, job_id, generation, url, type, about)
    SELECT closed.tenant_id, id, generation, coalesce(closed.webhook_url, t.webhook_url),
           CASE dialect WHEN 'openai' THEN 'batch.' ELSE 'job.' END || state, to_jsonb(closed)
    FROM closed LEFT JOIN tenants t ON t.tenant_id = closed.tenant_id AND dialect = 'openai'
    WHERE coalesce(closed.webhook_url, t.webhook_url) IS NOT NULL
"""

Endpoint = tuple[str, str]
"""Tenant and URL."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One try of a delivery."""

    id: UUID  #: webhook-id, the same over all tries
    tenant: str  #: tenant that is notified
    url: str  #: address of the receiver
    type: str  #: `job.completed`, `batch.failed`, `usage.threshold`, …
    about: str  #: JSON: the job's row as it ended, or other data
    tries: int  #: tries up to and including this one
    requested_at: datetime  #: time at which its tries began, again at a redelivery
    job: UUID | None = None  #: job that ended; None: it concerns no job
    traceparent: str | None = None  #: trace context of that job's request

    @property
    def endpoint(self) -> Endpoint:
        """Key of its circuit breaker."""
        return self.tenant, self.url


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A delivery as its tenant sees it."""

    id: UUID  #: webhook-id, the same over all tries
    tenant_id: str  #: tenant that is notified
    job_id: UUID | None  #: job that ended; None: it concerns no job
    generation: int | None  #: generation of that job
    url: str  #: address of the receiver
    type: str  #: `job.completed`, `batch.failed`, `usage.threshold`, …
    state: str  #: pending, delivered, failed or disabled
    tries: int  #: tries so far
    due_at: datetime  #: time of the next try, while it is pending
    created_at: datetime  #: time of the event
    delivered_at: datetime | None  #: time at which the receiver accepted it
    last_status: int | None  #: HTTP status of the last try
    last_error: str | None  #: error of the last try


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """An endpoint, summed up over the latest deliveries."""

    tenant_id: str  #: tenant that is notified
    url: str  #: address of the receiver
    deliveries: int  #: deliveries to it
    pending: int  #: those that are still to be made
    failed: int  #: those that failed, or found it disabled
    delivered_at: datetime | None  #: time of the last success
    next_try_at: datetime | None  #: time of the next try
    last_error: str | None  #: error of the latest delivery that did not succeed
    failures: int | None  #: failures in a row; None: it works
    open_until: datetime | None  #: end of its breaker's pause
    disabled_at: datetime | None  #: time at which it answered 410


# A delivery to an endpoint whose breaker is open waits until the breaker closes; one to a disabled
# endpoint, or one that has waited for too long, ends. Rows that another keeper has locked are left
# to it. Written out for its lock of one table of a join.
_POSTPONE = text("""
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

_d, _e = table.c, webhook_endpoints.c
# The first deliveries that are due and whose endpoint has no open breaker. Locked rows are another
# keeper's.
_DUE = (
    select(
        _d.id, _d.tenant_id, _d.url, _d.type, cast(_d.about, Text), _d.tries + 1,
        _d.requested_at, _d.job_id, _d.about["traceparent"].astext,
    )
    .where(text("state = 'pending'"), _d.due_at <= func.now())
    .where(
        ~exists().where(
            _e.tenant_id == _d.tenant_id,
            _e.url == _d.url,
            or_(_e.open_until > func.now(), _e.disabled_at.is_not(None)),
        )
    )
    .order_by(_d.due_at)
    .with_for_update(skip_locked=True)
)  # fmt: skip


def _has_breaker(endpoints: Collection[Endpoint]) -> ColumnElement[bool]:
    """Filters by the breakers of these endpoints that are or were open."""
    return tuple_(_e.tenant_id, _e.url).in_(endpoints) & _e.open_until.is_not(None)


def _lock_breakers(tx: Tx, endpoints: Collection[Endpoint]) -> dict[Endpoint, bool]:
    """Locks breakers that were open; returns True for each whose time is up, so that one delivery
    may try. Another keeper may have sent its own meanwhile; the lock shows it."""
    query = select(_e.tenant_id, _e.url, _e.open_until <= func.now())
    its = query.where(_has_breaker(endpoints)).order_by(_e.tenant_id, _e.url)
    return {(tenant, url): up for tenant, url, up in tx.execute(its.with_for_update())}


def claim(
    tx: Tx, in_flight: Mapping[Endpoint, int], *, most: int, most_each: int, lease_s: float,
    patience_s: float,
) -> list[Delivery]:  # fmt: skip
    """Leases up to `most` due deliveries to the caller for lease_s.

    One endpoint gets no more than `most_each`, those in flight included, and a single one where its
    breaker was open. One tenant gets no more than `most` together, however many endpoints it has.
    """
    tx.execute(_POSTPONE, {"patience_s": patience_s})
    busy = [endpoint for endpoint, count in in_flight.items() if count >= most_each]
    full = [tenant for tenant, count in _by_tenant(in_flight).items() if count >= most]
    has_room = tuple_(_d.tenant_id, _d.url).not_in(busy), _d.tenant_id.not_in(full)
    found = queries.many(tx, Delivery, _DUE.where(*has_room).limit(most))
    endpoints = {delivery.endpoint for delivery in found}
    breakers = _lock_breakers(tx, endpoints) if found else {}
    taken = _pick(found, in_flight, breakers, most, most_each)
    if taken:  # a held breaker keeps other keepers out while its one delivery runs
        until = queries.in_s(lease_s)
        held = _has_breaker({delivery.endpoint for delivery in taken})
        tx.execute(update(webhook_endpoints).where(held).values(open_until=until))
        due = update(table).where(_d.id.in_([delivery.id for delivery in taken]))
        tx.execute(due.values(tries=_d.tries + 1, due_at=until))
    return taken


def _pick(
    found: Sequence[Delivery],
    in_flight: Mapping[Endpoint, int],
    breakers: Mapping[Endpoint, bool],
    most: int,
    most_each: int,
) -> list[Delivery]:
    """Picks what may be sent; breakers: True where one delivery may try an open breaker."""
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


def record(
    tx: Tx, delivery: Delivery, state: str, wait_s: float, status: int | None, error: str | None
) -> bool:
    """Writes the result of a try; returns False where the try was no longer the caller's."""
    own = (
        table.c.id == delivery.id,
        table.c.tries == delivery.tries,
        table.c.requested_at == delivery.requested_at,
        table.c.state == "pending",
    )
    values: dict[str, Any] = {"state": state, "due_at": queries.in_s(wait_s)}
    values["delivered_at"] = func.now() if state == "delivered" else null()
    statement = update(table).where(*own)
    return tx.execute(statement.values(**values, last_status=status, last_error=error)).rowcount > 0


_COLUMNS = queries.columns(DeliveryRow, table)  # without `about`, which is long
_ROWS = select(*_COLUMNS)
_MOST_OF_TENANT = 20


def of_job(tx: Tx, tenant: str, job: UUID) -> Sequence[DeliveryRow]:
    """Lists a job's deliveries, the latest generation first."""
    query = _ROWS.where(queries.is_own(table), table.c.job_id == job)
    latest = query.order_by(table.c.generation.desc())
    return queries.many(tx, DeliveryRow, latest, {"tenant": tenant})


def of_tenant(tx: Tx, tenant: str) -> Sequence[DeliveryRow]:
    """Lists the latest deliveries that concern no job, newest first."""
    query = _ROWS.where(queries.is_own(table), table.c.job_id.is_(None))
    latest = query.order_by(table.c.created_at.desc()).limit(_MOST_OF_TENANT)
    return queries.many(tx, DeliveryRow, latest, {"tenant": tenant})


def page(
    tx: Tx,
    tenant: str,
    *,
    state: str | None,
    url: str | None,
    after: UUID | None,
    limit: int,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Sequence[DeliveryRow]:
    """Lists deliveries, newest first. tenant: one, or EVERYBODY; after: the id of the last one of
    the page before; since, until: time of the event, `until` excluded."""
    query = _ROWS.where(
        queries.is_own_or_all(table, tenant), queries.equal(table, state=state, url=url)
    )
    if since:
        query = query.where(table.c.created_at >= since)
    if until:
        query = query.where(table.c.created_at < until)
    place = tuple_(table.c.created_at, table.c.id)
    if after:
        last = table.alias()
        query = query.where(
            place < select(last.c.created_at, last.c.id).where(last.c.id == after).scalar_subquery()
        )
    newest = query.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit)
    return queries.many(tx, DeliveryRow, newest)


MOST_SUMMED = 10_000
"""Most deliveries, the latest ones, that are summed up by endpoint."""


def by_endpoint(tx: Tx, tenant: str, limit: int) -> Sequence[EndpointRow]:
    """Lists the endpoints of the latest deliveries, those with trouble first. tenant: one, or
    EVERYBODY."""
    newest = select(table).where(queries.is_own_or_all(table, tenant))
    d = newest.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(MOST_SUMMED).subquery()
    count, pending = func.count(), d.c.state == "pending"
    error = func.array_agg(aggregate_order_by(d.c.last_error, d.c.created_at.desc()))
    failed = d.c.last_error.is_not(None) & (d.c.state != "delivered")
    deliveries = count.label("deliveries")
    troubled = count.filter(d.c.state != "delivered")
    query = (
        select(
            d.c.tenant_id,
            d.c.url,
            deliveries,
            count.filter(pending).label("pending"),
            count.filter(d.c.state.in_(("failed", "disabled"))).label("failed"),
            func.max(d.c.delivered_at).label("delivered_at"),
            func.min(d.c.due_at).filter(pending).label("next_try_at"),
            type_coerce(error.filter(failed), ARRAY(Text))[1].label("last_error"),
        )
        .group_by(d.c.tenant_id, d.c.url)
        .order_by(troubled.desc(), deliveries.desc())
        .limit(limit)
        .subquery()
    )
    e = webhook_endpoints
    its_own = (e.c.tenant_id == query.c.tenant_id) & (e.c.url == query.c.url)
    rows = (
        select(query, e.c.failures, e.c.open_until, e.c.disabled_at)
        .join_from(query, e, its_own, isouter=True)
        .order_by(
            (query.c.pending + query.c.failed).desc(), query.c.deliveries.desc(),
            query.c.tenant_id, query.c.url,
        )
    )  # fmt: skip
    return queries.many(tx, EndpointRow, rows)


def redeliver(tx: Tx, tenant: str, job: UUID) -> DeliveryRow | None:
    """Makes the job's latest delivery due now, with all its tries again; None: it has none."""
    latest = (
        select(table.c.id)
        .where(queries.is_own(table), table.c.job_id == job)
        .order_by(table.c.generation.desc())
        .limit(1)
    )
    now = func.now()
    again = update(table).where(table.c.id == latest.scalar_subquery())
    again = again.values(state="pending", tries=0, due_at=now, requested_at=now, delivered_at=None)
    return queries.one(tx, DeliveryRow, again.returning(*_COLUMNS), {"tenant": tenant})
