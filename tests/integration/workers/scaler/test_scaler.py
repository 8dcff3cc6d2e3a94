"""Actuator `kubernetes` on an API that refuses, conflicts, hangs, and lets tokens end."""

import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.config import incluster_config
from sqlalchemy import Engine

from jobs import clock
from jobs.scaling.policy import Policy
from jobs.settings import Settings
from jobs.store.queue import workers
from jobs.store.queue.workers import ModelRow
from jobs.store.scaling import policies
from jobs.usecases import scaling
from ops.processes.ports import free_port
from tests.support.servers import kubernetes_api
from tests.support.servers.kubernetes_api import KubernetesApi, Scale
from tests.support.tls import Authority
from workers.keeper.scaling.actuators.protocol import ActuatorError
from workers.scaler import actuator as actuators
from workers.scaler.actuator import KubernetesActuator
from workers.scaler.cluster import DELETION_COST, Cluster
from workers.scaler.pods import PodChoice
from workers.scaler.scaler import Scaler
from workers.scaler.workloads import Workload

WORKLOADS = {
    "a": Workload("ml", "deployment", "worker"),
    "b": Workload("ml", "statefulset", "worker"),
}
DEPLOYMENT, STATEFULSET = "ml/deployment/worker", "ml/statefulset/worker"


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with kubernetes_api.running() as made:
        made.scales |= {DEPLOYMENT: Scale(1), STATEFULSET: Scale(1)}
        yield made


@pytest.fixture
def cluster(api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
    return Cluster()


@pytest.fixture
def actuator(cluster: Cluster) -> KubernetesActuator:
    return KubernetesActuator(cluster, WORKLOADS)


def test_deployments_and_statefulsets_are_set_by_a_merge_patch(
    api: KubernetesApi, actuator: KubernetesActuator
) -> None:
    assert [actuator.apply(pool, n) for pool in "ab" for n in (3, 3, 0, 0, 2)] == [
        True, False, True, False, True
    ] * 2  # fmt: skip
    assert api.patches == [(key, n) for key in (DEPLOYMENT, STATEFULSET) for n in (3, 0, 2)]
    assert api.content_types == {"application/merge-patch+json"}


def test_a_pool_without_workload_is_an_error_with_a_setting(actuator: KubernetesActuator) -> None:
    with pytest.raises(ActuatorError, match="add gpu=NAMESPACE/deployment/NAME"):
        actuator.apply("gpu", 1)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (401, "401: the API takes this process's token for expired or revoked: "),
        (403, "403: this process may not: its ServiceAccount needs the Role"),
        (404, "404: there is none: MILLRACE_SCALE_WORKLOADS names it"),
        (429, "429: it was told to fail"),
        (500, "500: it was told to fail"),
        (503, "503: it was told to fail"),
    ],
)
def test_what_the_api_refuses_is_told_in_its_words(
    api: KubernetesApi, actuator: KubernetesActuator, status: int, why: str
) -> None:
    api.failing = status
    with pytest.raises(ActuatorError, match=re.escape(why)):
        actuator.apply("a", 3)
    api.failing = 0
    assert actuator.apply("a", 3)
    assert api.scales[DEPLOYMENT].replicas == 3


def test_an_api_that_can_not_be_reached_is_told(
    api: KubernetesApi, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.hanging = True
    with pytest.raises(ActuatorError, match="reading the scale of deployment/worker in ml failed"):
        KubernetesActuator(Cluster(timeout_s=0.2), WORKLOADS).apply("a", 3)
    away = KubernetesApi(url=f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("KUBECONFIG", str(away.kubeconfig(tmp_path)))
    with pytest.raises(ActuatorError, match="the API doesn't answer"):
        KubernetesActuator(Cluster(), WORKLOADS).apply("a", 3)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ActuatorError, match="set KUBECONFIG"):
        Cluster()


def test_a_token_that_expires_is_read_again(
    api: KubernetesApi, actuator: KubernetesActuator, tmp_path: Path
) -> None:
    actuator.apply("a", 2)
    api.tokens = {"second"}
    with pytest.raises(ActuatorError, match="expired or revoked"):
        actuator.apply("a", 3)
    (tmp_path / "token").write_text("second")
    assert actuator.apply("a", 3)


def test_in_a_pod_the_service_account_is_used_and_its_new_token_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "cluster")
    pair = authority.pair("api")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    token = tmp_path / "token"
    token.write_text("first")
    with kubernetes_api.running(context) as api:
        api.scales[DEPLOYMENT] = Scale(1)
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority.cert))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.url.rpartition(":")[2])
        actuator = KubernetesActuator(Cluster(), WORKLOADS)
        assert actuator.apply("a", 2)
        api.tokens = {"second"}
        token.write_text("second")
        assert actuator.apply("a", 3)


def test_a_workload_that_changed_meanwhile_is_looked_at_again(
    api: KubernetesApi, actuator: KubernetesActuator
) -> None:
    api.changed_between = 2
    assert actuator.apply("a", 3)
    api.changed_between = 3
    with pytest.raises(ActuatorError, match="changed 3 times"):
        actuator.apply("a", 4)
    assert api.patches == [(DEPLOYMENT, 3)]


def test_a_number_of_somebody_else_is_set_back_and_said_for_a_while(
    api: KubernetesApi, actuator: KubernetesActuator, monkeypatch: pytest.MonkeyPatch
) -> None:
    actuator.apply("a", 2)
    api.scales[DEPLOYMENT].set(5)
    for _ in range(2):
        with pytest.raises(ActuatorError, match="kubectl -n ml get hpa,scaledobject"):
            actuator.apply("a", 2)
        assert api.scales[DEPLOYMENT].replicas == 2
    later_s = clock.monotonic() + actuators._CONTESTED_S  # noqa: SLF001
    monkeypatch.setattr(clock, "monotonic", lambda: later_s + 1)
    assert not actuator.apply("a", 2)


@pytest.fixture
def choosing(database: Engine, cluster: Cluster) -> KubernetesActuator:
    """An actuator that marks pods: of worker-1 and worker-2 the younger alone has `rare`."""
    for name, models in (("worker-1", ["a@1"]), ("worker-2", ["a@1", "rare@1"])):
        with database.begin() as tx:
            id = workers.register(tx, f"{name}:7", "a", "cpu", models)
            workers.heartbeat(tx, id, "ready")
            rows = [ModelRow(model, "ready", 1.0, 1.0, "") for model in models]
            workers.report_models(tx, id, rows)
    return KubernetesActuator(cluster, WORKLOADS, PodChoice(database, cluster, 60).choose)


def test_pods_whose_models_others_have_are_marked_to_go_first(
    api: KubernetesApi, choosing: KubernetesActuator
) -> None:
    api.scales[DEPLOYMENT].set(2)
    api.pods |= {"worker-1": {}, "worker-2": {}}
    assert choosing.apply("a", 1)
    assert int(api.pods["worker-1"][DELETION_COST]) < 0
    assert api.pods["worker-2"] == {}
    assert choosing.apply("a", 2)  # nothing is chosen where it grows
    assert api.pods["worker-2"] == {}


def test_without_the_right_to_mark_nothing_is_taken_away(
    api: KubernetesApi, choosing: KubernetesActuator
) -> None:
    api.may_patch_pods = False
    api.scales[DEPLOYMENT].set(2)
    with pytest.raises(ActuatorError, match=r'403.*cannot patch resource "pods"'):
        choosing.apply("a", 1)
    assert api.scales[DEPLOYMENT].replicas == 2


SPOT_WORKLOADS = {pool: Workload("ml", "deployment", pool) for pool in ("gpu", "spot")}
SPOT_POLICY = Policy(max_replicas=8, actuator="kubernetes", spot_pool="spot", spot_share=0.75)


@pytest.mark.parametrize(
    ("there", "on_demand"), [(0, 4), (2, 2), (4, 1)], ids=["none", "some", "all"]
)
def test_on_demand_replicas_stand_in_until_spot_ones_are_there(
    api: KubernetesApi, cluster: Cluster, database: Engine, settings: Settings,
    there: int, on_demand: int,
) -> None:  # fmt: skip
    api.scales = {f"ml/deployment/{pool}": Scale(1) for pool in SPOT_WORKLOADS}
    with database.begin() as tx:
        scaling.set_policy(tx, "gpu", SPOT_POLICY, "key_1")
        policies.decide(tx, "gpu", 4, "it was told to", {})
        for n in range(there):
            workers.register(tx, f"w:{n}", "spot", "cpu", [], 30.0)
    scaler = Scaler(settings, database, lambda: KubernetesActuator(cluster, SPOT_WORKLOADS))
    scaler.look()
    scaler.close()
    set_to = {key: scale.replicas for key, scale in api.scales.items()}
    assert set_to == {"ml/deployment/gpu": on_demand, "ml/deployment/spot": 4}
