"""A pool whose replicas are partly spot, on Kubernetes: each part has a workload of its own."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from jobs.scaling.policy import Policy
from jobs.settings import Settings
from jobs.store.queue import workers
from jobs.store.scaling import policies
from jobs.usecases import scaling
from tests.support.servers import kubernetes_api
from tests.support.servers.kubernetes_api import Scale
from workers.scaler.actuator import KubernetesActuator
from workers.scaler.cluster import Cluster
from workers.scaler.scaler import Scaler
from workers.scaler.workloads import Workload

WORKLOADS = {
    "gpu": Workload("ml", "deployment", "gpu"),
    "spot": Workload("ml", "deployment", "spot"),
}
POLICY = Policy(max_replicas=8, actuator="kubernetes", spot_pool="spot", spot_share=0.75)


@pytest.mark.parametrize(
    ("there", "on_demand"), [(0, 4), (2, 2), (4, 1)], ids=["none", "some", "all"]
)
def test_on_demand_replicas_stand_in_until_spot_ones_are_there(
    database: Engine, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    there: int, on_demand: int,
) -> None:  # fmt: skip
    with kubernetes_api.running() as api:
        api.scales |= {f"ml/deployment/{pool}": Scale(1) for pool in WORKLOADS}
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
        with database.begin() as tx:
            scaling.set_policy(tx, "gpu", POLICY, "key_1")
            policies.decide(tx, "gpu", 4, "it was told to", {})
            for n in range(there):
                workers.register(tx, f"w:{n}", "spot", "cpu", [], 30.0)
        cluster = Cluster()
        scaler = Scaler(settings, database, lambda: KubernetesActuator(cluster, WORKLOADS))
        scaler.look()
        scaler.close()
        set_to = {key: scale.replicas for key, scale in api.scales.items()}
    assert set_to == {"ml/deployment/gpu": on_demand, "ml/deployment/spot": 4}
