"""Policies of pools, with the number of replicas that was decided last, and their events."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from jobs.scaling.policy import Policy, dump, read
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.scaling_tables import pool_policies as table
from jobs.store.scaling_tables import scale_events as events_table

_KEPT = timedelta(days=90)  # of events
_MOST = 100  # shown


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """Autoscaler of one pool."""

    pool: str
    policy: str  #: JSON
    paused: bool
    desired: int | None  #: replicas; None: nothing was decided yet
    reason: str  #: of that number
    state: str  #: JSON: `History.state`
    updated_at: datetime
    updated_by: str  #: as actor of the audit log

    @property
    def terms(self) -> Policy:
        """Policy. Raises ValueError where another release wrote what this one can't read."""
        return read(orjson.loads(self.policy))


@dataclass(frozen=True, slots=True)
class EventRow:
    """Decision of a keeper, or a person's word, about a pool; or the reclaim of a worker."""

    id: int
    pool: str
    at: datetime
    act: str  #: up, down, overdue, failed, reclaimed, set, pause, resume, off
    desired: int | None  #: replicas after it
    reason: str
    actor: str
    figures: str  #: JSON


_ROWS = select(*queries.columns(PolicyRow, table))


def page(tx: Tx) -> list[PolicyRow]:
    """Returns the policies of all pools that have one, by name."""
    return queries.many(tx, PolicyRow, _ROWS.order_by(table.c.pool))


def get(tx: Tx, pool: str) -> PolicyRow | None:
    """Returns the policy of a pool; None: its autoscaler is off."""
    return queries.one(tx, PolicyRow, _ROWS.where(table.c.pool == pool))


def lock(tx: Tx, pool: str) -> PolicyRow | None:
    """Returns the same, locked until the transaction ends."""
    return queries.one(tx, PolicyRow, _ROWS.where(table.c.pool == pool).with_for_update())


def put(tx: Tx, pool: str, policy: Policy, actor: str) -> PolicyRow:
    """Stores the policy of a pool; what was decided before stays, within its bounds from the next
    decision on."""
    values = {"pool": pool, "policy": orjson.dumps(dump(policy)).decode(), "updated_by": actor}
    new = upsert(table).values(values)
    changed = {name: new.excluded[name] for name in ("policy", "updated_by")}
    return queries.many(
        tx,
        PolicyRow,
        new.on_conflict_do_update(
            index_elements=["pool"], set_={**changed, "updated_at": func.now()}
        ).returning(*queries.columns(PolicyRow, table)),
    )[0]


def set_paused(tx: Tx, pool: str, paused: bool, actor: str) -> None:
    """Stops decisions about a pool, or lets them go on with timers that begin anew."""
    values = {"paused": paused, "updated_by": actor, "updated_at": func.now(), "state": "{}"}
    tx.execute(update(table).where(table.c.pool == pool).values(values))


def remove(tx: Tx, pool: str) -> None:
    """Removes the policy of a pool: its autoscaler is off."""
    tx.execute(delete(table).where(table.c.pool == pool))


def decide(tx: Tx, pool: str, desired: int | None, reason: str, state: Mapping[str, Any]) -> None:
    """Writes what was decided."""
    values = {"desired": desired, "reason": reason, "state": orjson.dumps(state).decode()}
    tx.execute(update(table).where(table.c.pool == pool).values(values))


def add_event(
    tx: Tx, pool: str, act: str, desired: int | None, reason: str, actor: str,
    figures: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Adds an event."""
    values = {"pool": pool, "act": act, "desired": desired, "reason": reason, "actor": actor}
    json = orjson.dumps(figures or {}).decode()
    tx.execute(insert(events_table).inline().values(values | {"figures": json}))


def events(tx: Tx, pool: str, limit: int = _MOST) -> list[EventRow]:
    """Returns the latest events of a pool, newest first."""
    query = select(*queries.columns(EventRow, events_table)).where(events_table.c.pool == pool)
    return queries.many(tx, EventRow, query.order_by(events_table.c.id.desc()).limit(limit))


def delete_old_events(tx: Tx, pool: str) -> None:
    """Deletes the events of a pool that are older than 90 days."""
    its = events_table.c
    tx.execute(delete(events_table).where(its.pool == pool, its.at < func.now() - _KEPT))
