"""Rollouts and their events. A row is changed only from the state and the step that the caller saw:
of several keepers and people one wins, and each act is written once, with its event."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import case, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from jobs import clock, ids
from jobs.errors import Conflict
from jobs.models.routing.route import Sticky
from jobs.models.routing.table import STABLE
from jobs.rollouts.controller import Act, Decision, RolloutState, State
from jobs.rollouts.policy import Policy, dump, read
from jobs.store import queries
from jobs.store.db import Tx
from jobs.store.registry import aliases
from jobs.store.registry_tables import rollout_events as events_table
from jobs.store.registry_tables import rollouts as table

ID_PREFIX = "rollout"
_ENDED = ("promoted", "rolled_back")
_SALT_BITS = 64
_MOST = 100  # shown


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One rollout."""

    id: UUID
    name: str  #: of the model
    stable: str  #: version before
    canary: str  #: version that is coming
    state: State
    step: int  #: index among the policy's steps
    policy: str  #: JSON
    sticky: Sticky  #: callers that stay in their lane
    salt: str
    started_at: datetime
    started_by: str  #: as actor of the audit log
    step_at: datetime  #: when the step began
    ended_at: datetime | None
    reason: str  #: of the state

    @property
    def shown_id(self) -> str:
        """Id as people see it."""
        return ids.show(ID_PREFIX, self.id)

    @property
    def terms(self) -> Policy:
        """Policy."""
        return read(orjson.loads(self.policy))

    @property
    def percent(self) -> float:
        """Share of the canary at this step; 0 once it is rolled back."""
        return 0.0 if self.state == "rolled_back" else self.terms.steps[self.step]

    @property
    def key(self) -> str:
        """name@version of the canary."""
        return f"{self.name}@{self.canary}"


@dataclass(frozen=True, slots=True)
class EventRow:
    """One act, or a person's word, about a rollout."""

    id: int
    at: datetime
    act: str  #: start, advance, hold, resume, promote, roll_back
    actor: str  #: as in the audit log; "": written by an older release
    reason: str
    figures: str  #: JSON


_ROWS = select(*queries.columns(RolloutRow, table))


def start(
    tx: Tx, name: str, stable: str, canary: str, policy: Policy, sticky: Sticky, *, actor: str,
    tenant: str,
) -> RolloutRow:  # fmt: skip
    """Stores a rollout at its first step. tenant: its webhook endpoint is told of each event.

    Raises Conflict where the model has a rollout that is open.
    """
    values = {
        "id": ids.new(),
        "name": name,
        "stable": stable,
        "canary": canary,
        "policy": orjson.dumps(dump(policy)).decode(),
        "sticky": sticky,
        "salt": f"{clock.random_bits(_SALT_BITS):016x}",
        "started_by": actor,
    }
    new = insert(table).values(values).returning(*queries.columns(RolloutRow, table))
    try:
        with tx.begin_nested():
            row = queries.many(tx, RolloutRow, new)[0]
    except IntegrityError as error:
        raise Conflict(
            f"{name} has a rollout already: `millrace rollout status {name}` shows it; promote it "
            "or roll it back first"
        ) from error
    _add_event(tx, row, "start", actor, f"{stable} to {canary}, by {actor}", {"tenant": tenant})
    return row


def open_ones(tx: Tx) -> list[RolloutRow]:
    """Returns the rollouts that are running or held."""
    return queries.many(tx, RolloutRow, _ROWS.where(table.c.ended_at.is_(None)))


def get(tx: Tx, id: UUID) -> RolloutRow | None:
    """Returns a rollout, or None."""
    return queries.one(tx, RolloutRow, _ROWS.where(table.c.id == id))


def page(tx: Tx, name: str = "", limit: int = _MOST) -> list[RolloutRow]:
    """Returns rollouts of a model ("": of all): those that are open first, then the newest."""
    query = _ROWS.where(queries.equal(table, name=name))
    return queries.many(
        tx,
        RolloutRow,
        query.order_by(table.c.ended_at.is_not(None), table.c.started_at.desc()).limit(limit),
    )


def events(tx: Tx, id: UUID, limit: int = _MOST) -> list[EventRow]:
    """Returns the latest events of a rollout, newest first."""
    query = select(*queries.columns(EventRow, events_table)).where(events_table.c.rollout_id == id)
    return queries.many(tx, EventRow, query.order_by(events_table.c.id.desc()).limit(limit))


def step_times(tx: Tx, id: UUID) -> list[datetime]:
    """Returns when each step of a rollout began, in order."""
    begins = events_table.c.act.in_(("start", "advance"))
    query = select(events_table.c.at).where(events_table.c.rollout_id == id, begins)
    return list(tx.scalars(query.order_by(events_table.c.id)))


def state_of(row: RolloutRow, load_error: str = "") -> RolloutState:
    """Returns what a decision needs. load_error: see `load_error_of`."""
    return RolloutState(row.state, row.step, row.step_at.timestamp(), row.reason, load_error)


def apply(tx: Tx, row: RolloutRow, decision: Decision, actor: str) -> RolloutRow | None:
    """Writes an act with its event, its webhooks and, of a promotion, the alias `stable`.

    Rolling back is this one row: calls are routed as before from then on. Returns None where the
    rollout isn't in the state and step of `row` any more: somebody else was faster.
    """
    after = state_of(row).next(decision.act, decision.reason, 0.0)
    own = table.c.id == row.id, table.c.state == row.state, table.c.step == row.step
    moved = table.c.step != after.step
    changed = (
        update(table)
        .where(*own)
        .values(
            state=after.state,
            step=after.step,
            reason=decision.reason,
            step_at=case((moved, func.now()), else_=table.c.step_at),
            ended_at=func.now() if after.state in _ENDED else None,
        )
        .returning(*queries.columns(RolloutRow, table))
    )
    new = queries.one(tx, RolloutRow, changed)
    if new is None:
        return None
    if new.state == "promoted":
        aliases.put(tx, new.name, STABLE, new.canary, actor, new.terms.keep_warm_s)
    _add_event(tx, new, decision.act, actor, decision.reason, decision.figures)
    return new


def accept_cost(tx: Tx, row: RolloutRow) -> None:
    """Writes into the policy that a person has accepted the growth of cost."""
    policy = {**orjson.loads(row.policy), "accept_cost": True}
    values = {"policy": orjson.dumps(policy).decode()}
    tx.execute(update(table).where(table.c.id == row.id).values(values))


def _add_event(
    tx: Tx, row: RolloutRow, act: Act | str, actor: str, reason: str, figures: Mapping[str, Any]
) -> None:
    values = {"act": act, "actor": actor, "reason": reason}
    values["figures"] = orjson.dumps(figures).decode()
    tx.execute(insert(events_table).inline().values(rollout_id=row.id, **values))
    about = {
        "rollout": row.shown_id,
        "model": row.name,
        "stable": row.stable,
        "canary": row.canary,
        "state": row.state,
        "percent": row.percent,
        "reason": reason,
    }
    told = {"id": row.id, "type": f"rollout.{act}", "about": orjson.dumps(about).decode()}
    tx.execute(_NOTIFY, told)


# To the endpoint of the tenant whose operator started it. Written out: it inserts what it selects.
_NOTIFY = text("""
    INSERT INTO webhook_deliveries (tenant_id, url, type, about)
    SELECT tenant_id, webhook_url, :type,
           CAST(:about AS jsonb) || jsonb_build_object(
               'at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
    FROM tenants WHERE webhook_url IS NOT NULL AND tenant_id = (
        SELECT CAST(figures AS jsonb)->>'tenant' FROM rollout_events
        WHERE rollout_id = :id AND act = 'start')
""")

# No worker has the canary ready, or loads it, and one has failed to. Written out for its two
# aggregates over living workers.
_LOAD_ERROR = text("""
    SELECT max(m.error) FILTER (WHERE m.state = 'failed')
    FROM worker_models m JOIN workers w USING (incarnation)
    WHERE m.model = :key AND w.ended_at IS NULL
    HAVING bool_and(m.state = 'failed')
""")


def load_error_of(tx: Tx, row: RolloutRow) -> str:
    """Returns why no worker could load the canary; "": one has it, or is about to."""
    return tx.scalar(_LOAD_ERROR, {"key": row.key}) or ""
