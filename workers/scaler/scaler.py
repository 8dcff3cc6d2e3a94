"""Process that does in Kubernetes what the autoscaler decided; it alone may reach that API.

It knows numbers, from PostgreSQL, and nothing of calls and jobs. Of several one leads, by an
advisory lock.
"""

import logging
import signal
import threading
from collections.abc import Callable

from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs.processes.memory import collect_and_freeze
from jobs.scaling.spot import split
from jobs.settings import Settings, SettingsError
from jobs.store import db
from jobs.store.queue import workers
from jobs.store.scaling import policies
from jobs.store.scaling.leader import Leadership
from jobs.store.scaling.policies import PolicyRow
from jobs.store.tenancy import EVERYBODY, acting
from jobs.telemetry.metrics import exposition, record
from workers.crash import end_process
from workers.keeper.scaling.actuators.failures import Failures
from workers.keeper.scaling.actuators.protocol import Actuator, ActuatorError
from workers.scaler import workloads
from workers.scaler.actuator import KubernetesActuator, leave_choice

_log = logging.getLogger(__name__)
_EVERY_S = 2.0
ACTOR = "scaler"
NAME = "kubernetes"


class Scaler:
    """Brings the pools whose policies say `kubernetes` to the replicas that were decided on.

    new: makes the actuator of a lead: it remembers what it set.
    """

    def __init__(self, settings: Settings, database: Database, new: Callable[[], Actuator]) -> None:
        self._database, self._new = database, new
        self._actuator: Actuator | None = None
        self._leader = Leadership(settings.database_url, "millrace.kubernetes")
        self._silent_s = 2 * settings.lease_s
        self._failures = Failures(database, ACTOR)

    def close(self) -> None:
        """Gives up the lead."""
        self._leader.release()

    def look(self) -> None:
        """Does once what is due. Raises errors of the database."""
        with acting(self._database, EVERYBODY) as tx:
            rows = [row for row in policies.page(tx) if _is_ours(row)]
            spot = {
                pool: len(workers.held(tx, pool, self._silent_s))
                for row in rows
                if (pool := row.terms.spot_pool)
            }
        if not rows:
            self._leader.release()
        if not (rows and self._leader.hold()):
            self._actuator = None
            return
        self._actuator = self._actuator or self._new()
        for row in rows:
            if row.desired is not None:
                its = split(row.desired, spot.get(row.terms.spot_pool, 0), row.terms)
                self._act(row.pool, its.on_demand, self._actuator)
                if row.terms.spot_pool:
                    self._act(row.terms.spot_pool, its.spot, self._actuator)

    def run(self, stopping: threading.Event) -> None:
        """Looks until it is stopped."""
        while not stopping.is_set():
            try:
                self.look()
            except (SQLAlchemyError, *db.CONNECTION_ERRORS) as error:
                _log.warning("can't read what was decided: %s", error)
            stopping.wait(_EVERY_S)
        self.close()

    def _act(self, pool: str, replicas: int, actuator: Actuator) -> None:
        with self._failures.recorded(pool, replicas):
            if actuator.apply(pool, replicas):
                _log.info("%s: set to %d replicas", pool, replicas)


def _is_ours(row: PolicyRow) -> bool:
    try:
        return row.terms.actuator == NAME
    except ValueError as error:
        _log.error("the policy of %s can't be read, and nothing is done: %s", row.pool, error)
        return False


def run_scaler(settings: Settings) -> None:
    """Runs a scaler until SIGTERM or SIGINT. Raises SettingsError."""
    threading.excepthook = end_process
    database = db.connect(settings.database_url, pool_size=1, role=db.WORKER)
    scaler = Scaler(settings, database, _actuators(settings, database))
    record.start("scaler", settings.metrics)
    exposition.serve(settings)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    collect_and_freeze()
    scaler.run(stopping)
    database.dispose()


def _actuators(settings: Settings, database: Database) -> Callable[[], Actuator]:
    try:
        from workers.scaler.cluster import Cluster
    except ImportError as error:
        needed = "`millrace scaler` needs Kubernetes' client: pip install 'millrace[kubernetes]'"
        raise SettingsError([needed]) from error
    from workers.scaler.pods import PodChoice

    try:
        cluster, of_pools = Cluster(), workloads.parse(settings.scale_workloads)
    except ValueError as error:
        raise SettingsError([f"MILLRACE_SCALE_WORKLOADS: {error}"]) from error
    except ActuatorError as error:
        raise SettingsError([str(error)]) from error
    if not of_pools:
        example = "gpu=millrace/deployment/worker-gpu"
        raise SettingsError([f"MILLRACE_SCALE_WORKLOADS: name the workload of a pool: {example}"])
    _log.info("scales %s", ", ".join(f"{one} for {pool}" for pool, one in of_pools.items()))
    choice = PodChoice(database, cluster, 2 * settings.lease_s)
    choose = choice.choose if settings.scale_pod_costs else leave_choice
    return lambda: KubernetesActuator(cluster, of_pools, choose)
