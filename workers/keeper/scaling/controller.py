"""Autoscaler: decides about every pool that has a policy, and asks its actuator for the replicas;
advises workers by the same figures.

One keeper leads, by an advisory lock; all measure. What a decision needs of the past is in the
pool's row, so that the next leader goes on where this one ended.
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress

import orjson
from redis import Redis
from sqlalchemy import Engine as Database

from jobs import clock, ids
from jobs.models.watcher import ModelsFile
from jobs.scaling.controller import Decision, decide
from jobs.scaling.forecast import BIN_S, Arrivals
from jobs.scaling.history import History
from jobs.scaling.policy import Policy
from jobs.scaling.signals import Signals
from jobs.scaling.spot import split
from jobs.settings import Settings
from jobs.states import API_POOL
from jobs.store.db import Tx
from jobs.store.monitoring import gauges
from jobs.store.scaling import arrivals, reclaims
from jobs.store.scaling import policies as store
from jobs.store.scaling.leader import Leadership
from jobs.store.scaling.policies import PolicyRow
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import audit
from jobs.telemetry.metrics import pools, record
from jobs.telemetry.reports import reader
from workers.keeper.scaling import load
from workers.keeper.scaling.actuators.command import CommandActuator
from workers.keeper.scaling.actuators.failures import Failures
from workers.keeper.scaling.actuators.plan import PlanActuator
from workers.keeper.scaling.actuators.protocol import Actuator
from workers.keeper.scaling.adviser import Adviser
from workers.service import Service

_log = logging.getLogger(__name__)
_ON_S, _OFF_S = 2.0, 5.0  # between two looks: with a policy or advice, and without
_SAMPLE_S = 30.0  # between two samples of the work that calls bring
ACTOR = "keeper"


class PoolController(Service):
    """Keeper service: measures every pool, and decides where it leads."""

    def __init__(
        self, settings: Settings, redis: "Redis", file: ModelsFile, database: Database
    ) -> None:
        super().__init__("pools", _OFF_S)
        self._settings, self._redis, self._file, self._database = settings, redis, file, database
        self._leader = Leadership(settings.database_url, "millrace.scaling")
        self._adviser = Adviser(settings, redis, file, database)
        self._gauges = pools.PoolGauges()
        self._plan = PlanActuator()  # other processes act for all the others
        self._actuators: dict[str, Actuator] = {"command": CommandActuator(settings.scale_command)}
        self._failures = Failures(database, ACTOR)
        self._arrivals: dict[str, Arrivals] = {}  # by pool
        self._sampled_s: dict[str, float] = {}  # by pool, Unix time of the latest sample

    def close(self) -> None:
        """Gives up the lead."""
        self._leader.release()

    def run_once(self) -> int:
        """Measures and decides once; returns 0. Raises database errors."""
        with record.keeper_run(self.name):
            with acting(self._database, EVERYBODY) as tx:
                rows = store.page(tx)
                workers = gauges.workers(tx, 2 * self._settings.lease_s)
                reclaimed = reclaims.recent(tx)
            reports = reader.read(self._redis)
            queues = load.read_queues(self._redis, self._file.models)
            loads = load.of_pools(reports, queues, self._file.models, workers, _requests_s(rows))
            for row in rows:
                loads.setdefault(row.pool, Signals(clock.now().timestamp()))
            self.interval_s = _ON_S if rows or self._adviser.active else _OFF_S
            if rows and self._leader.hold():
                for row in rows:
                    self._look(row.pool, loads)
            elif not rows:
                self._leader.release()
            decided = {row.pool: _decided(row, loads[row.pool]) for row in rows}
            self._gauges.set_reclaimed(reclaimed)
            self._gauges.set(
                {pool: {**one.figures(), **decided.get(pool, {})} for pool, one in loads.items()}
            )
            self._adviser.advise(reports, queues, loads)  # last: a failure keeps back no decision
        return 0

    def _look(self, pool: str, loads: Mapping[str, Signals]) -> None:
        """Decides about one pool, in a transaction that people's words wait for."""
        signals = loads[pool]
        with acting(self._database, EVERYBODY) as tx:
            row = store.lock(tx, pool)
            if row is None:
                return
            try:
                terms = row.terms
            except ValueError as error:
                _log.error(
                    "the policy of %s can't be read, and nothing is decided: %s", pool, error
                )
                return
            spot = loads.get(terms.spot_pool, Signals(signals.at_s))
            signals = signals.with_spot(spot) if terms.spot_pool else signals
            self._sample(tx, pool, signals)
            desired = row.desired if row.paused else self._decide(tx, row, signals)
        if desired is None:
            return
        its = split(desired, spot.ready + spot.booting, terms)
        self._act(pool, terms.actuator, its.on_demand)
        if terms.spot_pool:
            self._act(terms.spot_pool, terms.actuator, its.spot)

    def _decide(self, tx: Tx, row: PolicyRow, signals: Signals) -> int | None:
        state = orjson.loads(row.state)
        history = History.from_state(
            state, row.desired, signals.at_s, self._arrivals.get(row.pool, Arrivals())
        )
        decision = decide(signals, row.terms, history)
        new = decision.history
        changed = decision.act != "stay"
        if changed or new.state() != state or new.desired != row.desired:
            reason = decision.reason if changed or not row.reason else row.reason
            store.decide(tx, row.pool, new.desired, reason, new.state())
        if changed:
            self._record(tx, row.pool, decision, signals)
        return new.desired

    def _record(self, tx: Tx, pool: str, decision: Decision, signals: Signals) -> None:
        figures = {name: value for name, value in signals.figures().items() if value is not None}
        figures |= {"ready": signals.ready, "loading": signals.booting, "queue": signals.queue}
        store.add_event(
            tx, pool, decision.act, decision.desired, decision.reason, ACTOR,
            {name: float(f"{value:.4g}") for name, value in figures.items()},
        )  # fmt: skip
        audit.record(
            tx, tenant=EVERYBODY, actor=ACTOR, act=f"scale.{decision.act}", target=pool,
            request_id=ids.show("req", ids.new()),
            detail={"replicas": decision.desired, "reason": decision.reason},
        )  # fmt: skip
        pools.decided(pool, decision.act)
        _log.info("%s: %s to %d: %s", pool, decision.act, decision.desired, decision.reason)

    def _sample(self, tx: Tx, pool: str, signals: Signals) -> None:
        """Keeps the work that calls bring, and reads the forecast's past once in a bin."""
        before_s = self._sampled_s.get(pool)
        if signals.missing or (before_s is not None and signals.at_s - before_s < _SAMPLE_S):
            return
        arrivals.add(tx, pool, signals.at_s, signals.offered)
        if before_s is None or signals.at_s // BIN_S != before_s // BIN_S:
            arrivals.delete_old(tx, pool, signals.at_s)
            store.delete_old_events(tx, pool)
            self._arrivals[pool] = arrivals.read(tx, pool)
        self._sampled_s[pool] = signals.at_s  # last: after an error there is no forecast yet

    def _act(self, pool: str, actuator: str, desired: int) -> None:
        with self._failures.recorded(pool, desired):
            if self._actuators.get(actuator, self._plan).apply(pool, desired):
                _log.info("%s: %s was asked for %d replicas", pool, actuator, desired)


def _requests_s(rows: Iterable[PolicyRow]) -> float:
    """Returns the requests a second that an api carries."""
    for row in rows:
        if row.pool == API_POOL:
            with suppress(ValueError):  # of another release; `_look` says so
                return row.terms.requests_s
    return Policy().requests_s


def _decided(row: PolicyRow, signals: Signals) -> dict[str, float | None]:
    """Returns the figures of what was decided before."""
    late = orjson.loads(row.state).get("overdue", False) and row.desired is not None
    overdue = max(0, (row.desired or 0) - signals.ready) if late else 0
    return {"desired": row.desired, "overdue": overdue}
