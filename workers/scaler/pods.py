"""Choice of the pods that go when a Deployment shrinks, by the cost of their deletion."""

from sqlalchemy import Engine as Database

from jobs import clock
from jobs.scaling.drain_order import drain_order
from jobs.store.queue import workers
from jobs.store.tenancy import EVERYBODY, acting
from workers.scaler.cluster import Cluster
from workers.scaler.workloads import Workload


class PodChoice:
    """Has those pods go first whose models other workers of the pool have too.

    A worker's host is its pod. A StatefulSet always loses its last pods, so nothing is chosen.
    silent_s: after which a worker is taken for dead.
    """

    def __init__(self, database: Database, cluster: Cluster, silent_s: float) -> None:
        self._database, self._cluster, self._silent_s = database, cluster, silent_s

    def choose(self, pool: str, workload: Workload, fewer: int) -> None:
        """Marks so many pods. Raises ActuatorError."""
        if workload.kind == "statefulset":
            return
        with acting(self._database, EVERYBODY) as tx:
            held = workers.held(tx, pool, self._silent_s)
        order = drain_order({one.name.rpartition(":")[0]: one.models for one in held})
        # Of several choices the latest counts: its cost is the least.
        cost = -int(clock.now().timestamp() / 60)
        for pod in order[:fewer]:
            self._cluster.set_deletion_cost(workload.namespace, pod, cost)
