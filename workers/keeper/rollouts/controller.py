"""Rollouts: reads what their launches say, and moves them on, holds them or rolls them back.

What a keeper knows of a rollout is a fold over its stream, which any keeper makes anew from the
beginning; an act is written only from the state and step that it was decided for. So any number of
keepers may decide, and one of them writes.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from math import inf
from typing import Any
from uuid import UUID

from redis import RedisError
from sqlalchemy import Engine as Database

from jobs import clock, ids
from jobs.calls import redis as call_redis
from jobs.calls.streams.rollout import StreamReader
from jobs.rollouts.controller import Decision, decide, figures_of
from jobs.rollouts.guardrails import Observations
from jobs.settings import Settings
from jobs.store.registry import rollouts as store
from jobs.store.registry.rollouts import RolloutRow
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import audit
from jobs.telemetry.metrics import record
from workers.keeper.rollouts.residuals import Residuals
from workers.service import Service

_log = logging.getLogger(__name__)
_OPEN_S, _NONE_S = 0.5, 2.0
ACTOR = "keeper"


class RolloutWatch:
    """Launches of one rollout, folded so far."""

    def __init__(self, row: RolloutRow, reader: StreamReader, step_times_s: list[float]) -> None:
        self._row, self._reader = row, reader
        self._residuals = Residuals()
        alone = len(step_times_s) > row.step and row.terms.is_alone(row.step)
        self.observations = Observations(
            step_times_s, alone_from_s=step_times_s[row.step] if alone else inf
        )

    def read(self, row: RolloutRow) -> None:
        """Adds what the stream has since the last time. row: the rollout as it is now. Raises
        RedisError."""
        if row.step != self._row.step:
            alone = row.terms.is_alone(row.step)
            self.observations.begin_step(row.step_at.timestamp(), alone=alone)
            self.observations.reach(row.step_at.timestamp())
        self._row = row
        while records := self._reader.read():
            self.observations.add(map(self._residuals.with_residual, records))

    def decide(self, load_error: str) -> Decision:
        """Returns the act that is due."""
        self.observations.reach(self._row.step_at.timestamp())
        state, terms = store.state_of(self._row, load_error), self._row.terms
        decision = decide(state, self.observations, terms, clock.now().timestamp())
        return replace(decision, figures=figures_of(self.observations, terms))


class RolloutController(Service):
    """Keeper service: decides about every rollout that is open."""

    def __init__(self, settings: Settings, database: Database) -> None:
        super().__init__("rollouts", _NONE_S)
        self._redis, self._database = call_redis.connect(settings.redis_url), database
        self.watches: dict[UUID, RolloutWatch] = {}  #: by rollout
        self.latest: dict[str, dict[str, Any]] = {}  #: by rollout: what its last look said

    def close(self) -> None:
        """Closes the connection to Redis."""
        self._redis.close()

    def run_once(self) -> int:
        """Looks at each rollout once; returns 0. Raises database errors."""
        with record.keeper_run(self.name):
            with acting(self._database, EVERYBODY) as tx:
                rows = store.open_ones(tx)
                errors = {row.id: store.load_error_of(tx, row) for row in rows}
                for row in rows:
                    if row.id not in self.watches:
                        self.watches[row.id] = self.watch(row, store.step_times(tx, row.id))
            self.watches = {row.id: self.watches[row.id] for row in rows}
            self.interval_s = _OPEN_S if rows else _NONE_S
            self.latest = {row.shown_id: self._look(row, errors[row.id]) for row in rows}
        return 0

    def watch(self, row: RolloutRow, step_times: Sequence[datetime]) -> RolloutWatch:
        """Returns a watch of a rollout, which has read nothing yet."""
        reader = StreamReader(self._redis, str(row.id))
        return RolloutWatch(row, reader, [at.timestamp() for at in step_times])

    def _look(self, row: RolloutRow, load_error: str) -> dict[str, Any]:
        """Returns what it says, for the report of this process."""
        watch = self.watches[row.id]
        try:
            watch.read(row)
        except RedisError as error:
            _log.warning("the launches of %s can't be read: %s", row.shown_id, error)
        decision = watch.decide(load_error)
        if decision.act != "stay":
            self._apply(row, decision)
        return {"act": decision.act, "reason": decision.reason, "figures": decision.figures}

    def _apply(self, row: RolloutRow, decision: Decision) -> None:
        with acting(self._database, EVERYBODY) as tx:
            new = store.apply(tx, row, decision, ACTOR)
            if new:
                audit.record(
                    tx, tenant=EVERYBODY, actor=ACTOR, act=f"rollout.{decision.act}",
                    target=row.shown_id, request_id=ids.show("req", ids.new()),
                    detail={"model": row.name, "reason": decision.reason, "percent": new.percent},
                )  # fmt: skip
        if new:
            _log.info("%s of %s: %s: %s", row.shown_id, row.name, decision.act, decision.reason)
