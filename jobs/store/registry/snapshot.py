"""Snapshot of the registry: what the processes serve and route by."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import orjson
from sqlalchemy import Text, cast, func, select, text

from jobs.models import registered
from jobs.models.model import Model
from jobs.models.registered import Registered, RegisteredVersion
from jobs.models.registry import Registry
from jobs.models.routing.rollout import ActiveRollout
from jobs.models.routing.table import RoutingTable
from jobs.settings import SettingsError
from jobs.store.db import Tx
from jobs.store.queue import backlog
from jobs.store.registry import aliases, routes, versions
from jobs.store.registry_tables import rollouts
from jobs.store.tables import jobs

_OPEN = select(
    rollouts.c.id, rollouts.c.name, rollouts.c.stable, rollouts.c.canary, rollouts.c.step,
    rollouts.c.policy, rollouts.c.sticky, rollouts.c.salt,
).where(rollouts.c.ended_at.is_(None))  # fmt: skip
# Long enough for a process that couldn't read the registry meanwhile.
_ROLLED_BACK = (
    select(cast(rollouts.c.id, Text), func.concat(rollouts.c.name, "@", rollouts.c.canary))
    .where(
        rollouts.c.state == "rolled_back", rollouts.c.ended_at > func.now() - text("interval '1 h'")
    )
    .order_by(rollouts.c.id)
)
_VALIDATING = (
    select(func.concat(jobs.c.model, "@", jobs.c.version))
    .where(jobs.c.finished_at.is_(None), jobs.c.state == "validating")
    .distinct()
)


def read(tx: Tx) -> Registered:
    """Reads the active versions, and all that routes calls. The transaction sees all tenants."""
    routing = RoutingTable(
        {(one.name, one.alias): one.version for one in aliases.all_of(tx)},
        {one.name: one for one in _active_rollouts(tx)},
        {(one.name, one.tenant): one for one in routes.all_of(tx)},
    )
    return Registered(
        tuple(versions.in_state(tx, "active")),
        routing=routing,
        kept_warm=frozenset(aliases.kept_warm(tx)),
        rolled_back=tuple((row[0], row[1]) for row in tx.execute(_ROLLED_BACK)),
    )


def read_with_unfinished(tx: Tx) -> Registered:
    """Reads also the retired versions whose jobs have not ended, for those who run them."""
    found = tuple(_unfinished(tx, versions.in_state(tx, "retired")))
    return replace(read(tx), unfinished=found)


def _unfinished(tx: Tx, retired: Sequence[RegisteredVersion]) -> Iterator[RegisteredVersion]:
    named = {one: _with_adapters(one) for one in retired}
    models = [model for some in named.values() for model in some]
    if models:
        busy = backlog.unfinished(tx, models) | set(tx.scalars(_VALIDATING))
        yield from (one for one in retired if any(model.key in busy for model in named[one]))


def _with_adapters(one: RegisteredVersion) -> list[Model]:
    """Returns the models that a version's jobs may name; none where it can't be read."""
    try:
        registry = Registry([registered.parse(one)])
    except SettingsError:
        return []
    return registry.with_adapters(registry)


def _active_rollouts(tx: Tx) -> Iterator[ActiveRollout]:
    for row in tx.execute(_OPEN):
        steps = orjson.loads(row.policy)["steps"]
        percent = steps[min(row.step, len(steps) - 1)]
        yield ActiveRollout(
            str(row.id), row.name, row.stable, row.canary, percent, row.sticky, row.salt
        )
