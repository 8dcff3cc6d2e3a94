"""The manifests: valid, and true to each other and to the product. Nothing is applied."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from jobs.models import models_file
from jobs.settings import Settings
from ops.supervisor.worker import grace_s
from tests.unit.ops.deploy.kit import DEPLOY, wrong
from tests.unit.ops.deploy.settings import SETTINGS, is_command
from workers.scaler import workloads

KUBERNETES = DEPLOY / "kubernetes"
KINDS = ("cpu", "gpu")
SCHEMAS = "1.33"
NEEDED = {
    "ScaledObject": (("scaleTargetRef", "name"), ("triggers",)),
    "PodMonitor": (("selector",), ("podMetricsEndpoints",)),
}
"""What those must have that bring their own definition into a cluster, by their documentation."""
AWS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}

Manifest = dict[str, Any]


def documents(path: Path) -> list[Manifest]:
    return [found for found in yaml.safe_load_all(path.read_text()) if found]


def built(folder: Path) -> Iterator[Manifest]:
    """All that a kustomization lists: none of ours patches anything."""
    [kustomization] = documents(folder / "kustomization.yaml")
    for name in kustomization["resources"]:
        path = folder / name
        yield from built(path) if path.is_dir() else documents(path)


EVERYTHING = {kind: list(built(KUBERNETES / "overlays" / kind)) for kind in KINDS}
EXAMPLES = [
    found for path in sorted((KUBERNETES / "examples").iterdir()) for found in documents(path)
]
SCALER = list(built(KUBERNETES / "scaler"))
EACH = [
    *EVERYTHING["cpu"],
    *(one for name in ("worker", "keda")
      for one in documents(KUBERNETES / "overlays" / "gpu" / f"{name}.yaml")),
    *SCALER,
    *EXAMPLES,
]  # fmt: skip


def named(found: Manifest) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"


def of(kind: str) -> list[Manifest]:
    return [found for found in EACH if found["kind"] == kind]


def pod(found: Manifest) -> Manifest:
    template: Manifest = found["spec"]["template"]
    return template


RUNNING = of("Deployment") + of("Job")
each = pytest.mark.parametrize("found", EACH, ids=named)
each_running = pytest.mark.parametrize("found", RUNNING, ids=named)
each_deployment = pytest.mark.parametrize("found", of("Deployment"), ids=named)


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def container(found: Manifest) -> Manifest:
    [only] = pod(found)["spec"]["containers"]
    return only  # type: ignore[no-any-return]


def ports(found: Manifest) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(found).get("ports", ())}


@pytest.mark.parametrize("path", [DEPLOY], ids=["ops/deploy"])
def test_yaml_is_tidy(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "yamllint", "--strict", "-c", path / ".yamllint", path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@each
def test_kubernetes_would_take_it(found: Manifest) -> None:
    if found["kind"] in NEEDED:
        for path in NEEDED[found["kind"]]:
            there: Any = found["spec"]
            for name in path:
                there = there[name]
            assert there
    else:
        kubernetes_validate.validate(found, SCHEMAS, strict=True)


@pytest.mark.parametrize("kind", KINDS)
def test_kubectl_builds_the_same(kind: str) -> None:
    if not (kubectl := shutil.which("kubectl")):
        pytest.skip("kubectl isn't installed")
    done = subprocess.run(
        [kubectl, "kustomize", KUBERNETES / "overlays" / kind], capture_output=True, text=True
    )
    made = list(yaml.safe_load_all(done.stdout))
    assert sorted(map(named, made)) == sorted(map(named, EVERYTHING[kind]))
    images = {c["image"] for one in made if one["kind"] == "Deployment"
              for c in pod(one)["spec"]["containers"]}  # fmt: skip
    assert all("/" in image and ":" in image for image in images)


@each
def test_everything_lies_in_the_namespace(found: Manifest) -> None:
    where = found["metadata"]["name" if found["kind"] == "Namespace" else "namespace"]
    assert where == "millrace"


@each_running
def test_environments_name_settings_and_what_holds_them(found: Manifest) -> None:
    held = {(one["kind"], one["metadata"]["name"]): one for one in EACH}
    names = [one["name"] for one in container(found).get("env", ())]
    for source in container(found)["envFrom"]:
        [(kind, ref)] = source.items()
        holder = held["Secret" if kind == "secretRef" else "ConfigMap", ref["name"]]
        names += {**holder.get("data", {}), **holder.get("stringData", {})}
    assert set(names) <= SETTINGS | AWS
    assert "MILLRACE_DATABASE_URL" in names


@each_running
def test_arguments_are_commands(found: Manifest) -> None:
    assert is_command(container(found)["args"])


@each_running
def test_a_process_can_do_no_more_than_it_must(found: Manifest) -> None:
    spec, inside = pod(found)["spec"], container(found)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is (spec["serviceAccountName"] == "millrace-scaler")
    assert inside["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= inside["resources"]["requests"].keys()
    assert "memory" in inside["resources"]["limits"]


@each_running
def test_what_is_mounted_is_there(found: Manifest) -> None:
    volumes = {volume["name"]: volume for volume in pod(found)["spec"]["volumes"]}
    assert {mount["name"] for mount in container(found)["volumeMounts"]} == volumes.keys()
    maps = {one["metadata"]["name"] for one in of("ConfigMap")}
    assert {v["configMap"]["name"] for v in volumes.values() if "configMap" in v} <= maps
    assert container(found)["volumeMounts"][0]["mountPath"] == "/tmp"  # bodies are spooled


@each_deployment
def test_selectors_find_their_pods_and_no_others(found: Manifest) -> None:
    labels = pod(found)["metadata"]["labels"]
    matching = [one for one in of("Deployment")
                if selects(found["spec"]["selector"], pod(one)["metadata"]["labels"])]  # fmt: skip
    assert matching == [found]
    for spread in pod(found)["spec"]["topologySpreadConstraints"]:
        assert selects(spread["labelSelector"], labels)


@each_deployment
def test_a_deployment_has_one_disruption_budget(found: Manifest) -> None:
    labels = pod(found)["metadata"]["labels"]
    budgets = [one for one in of("PodDisruptionBudget") if selects(one["spec"]["selector"], labels)]
    assert [one["metadata"]["name"] for one in budgets] == [found["metadata"]["name"]]


@each_deployment
def test_probes_ask_at_ports_that_there_are(found: Manifest) -> None:
    inside = container(found)
    probes = {name: probe for name, probe in inside.items() if name.endswith("Probe")}
    assert "readinessProbe" in probes
    assert "livenessProbe" in probes or inside["args"] == ["worker"]  # its supervisor is one
    for probe in probes.values():
        asked = probe["httpGet"]
        assert asked["port"] in ports(found)
        assert asked["path"] in ({"/livez", "/readyz"} if asked["port"] == "http" else {"/metrics"})


def test_metrics_are_where_monitor_and_policy_look() -> None:
    [shared] = [one["data"] for one in of("ConfigMap") if "MILLRACE_METRICS_PORT" in one["data"]]
    port = int(shared["MILLRACE_METRICS_PORT"])
    [monitor] = of("PodMonitor")
    [into] = [one for one in of("NetworkPolicy") if one["metadata"]["name"] == "metrics-in"]
    assert {ports(one)["metrics"] for one in of("Deployment")} == {port}
    assert [end["port"] for end in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]
    assert into["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port}]
    for one in of("Deployment"):
        labels = pod(one)["metadata"]["labels"]
        assert selects(monitor["spec"]["selector"], labels)
        assert labels[monitor["spec"]["jobLabel"]].startswith("millrace-")  # MillraceScrapeDown


def test_the_service_leads_to_the_api() -> None:
    [service], [api] = (
        of("Service"),
        [one for one in of("Deployment") if named(one).endswith("/api")],
    )
    assert service["spec"]["selector"].items() <= pod(api)["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] in ports(api)
    told = {one["name"]: one["value"] for one in container(api)["env"]}
    assert int(told["MILLRACE_PORT"]) == ports(api)["http"]


@each_running
def test_a_pod_may_do_what_policies_say_and_nothing_else(found: Manifest) -> None:
    policies = of("NetworkPolicy")
    labels = pod(found)["metadata"]["labels"]
    [default] = [one for one in policies if one["spec"]["podSelector"] == {}]
    assert set(default["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    assert not default["spec"].keys() & {"ingress", "egress"}
    on_it = {
        one["metadata"]["name"] for one in policies if selects(one["spec"]["podSelector"], labels)
    }
    shared = {"nothing-else", "names-out", "services-out", "metrics-in"}
    own = {
        "millrace-api": {"api-in"},
        "millrace-keeper": {"webhooks-out"},
        "millrace-scaler": {"kubernetes-out"},
    }
    assert on_it == shared | own.get(labels["app"], set())


def test_webhooks_have_no_way_into_private_networks() -> None:
    [policy] = [one for one in of("NetworkPolicy") if one["metadata"]["name"] == "webhooks-out"]
    [rule] = policy["spec"]["egress"]
    kept_out = {net for to in rule["to"] for net in to["ipBlock"]["except"]}
    assert {
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "fc00::/7",
    } <= kept_out


def test_what_scales_itself_has_no_number_and_one_who_scales_it() -> None:
    scalers = [
        (one["spec"]["scaleTargetRef"]["name"], one)
        for one in (*of("HorizontalPodAutoscaler"), *of("ScaledObject"))
    ]
    free = {one["metadata"]["name"] for one in of("Deployment") if "replicas" not in one["spec"]}
    assert sorted(name for name, _ in scalers) == sorted(free)
    assert free == {"api", "worker-cpu", "worker-gpu"}


def scaled_here() -> dict[str, workloads.Workload]:
    """Workloads of the scaler, by pool."""
    [scaler] = [one for one in SCALER if one["kind"] == "Deployment"]
    told = {one["name"]: one["value"] for one in container(scaler)["env"]}
    return dict(workloads.parse(told["MILLRACE_SCALE_WORKLOADS"]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_is_scaled_by_keda_or_by_the_scaler_and_never_by_both(kind: str) -> None:
    [kustomization] = documents(KUBERNETES / "overlays" / kind / "kustomization.yaml")
    listed = set(kustomization["resources"])
    assert len(listed & {"keda.yaml", "../../scaler"}) == 1
    keda = documents(KUBERNETES / "overlays" / kind / "keda.yaml")
    rest = [one for one in EVERYTHING[kind] if one not in keda]
    assert {one["kind"] for one in keda} == {"ScaledObject"}
    others = [one["spec"]["scaleTargetRef"]["name"] for one in rest
              if one["kind"] in ("ScaledObject", "HorizontalPodAutoscaler")]  # fmt: skip
    ours = {one.name: one for one in scaled_here().values()}
    assert not ours.keys() & set(others)
    [scaled] = keda
    its = ours[scaled["spec"]["scaleTargetRef"]["name"]]
    assert (its.kind, its.namespace) == ("deployment", "millrace")


def test_the_scaler_scales_each_pool_by_its_name() -> None:
    pools = {
        pod(one)["metadata"]["labels"]["pool"]: one["metadata"]["name"]
        for one in of("Deployment")
        if container(one)["args"] == ["worker"]
    }
    assert {pool: one.name for pool, one in scaled_here().items()} == pools


def test_the_scaler_may_read_and_set_those_scales_and_nothing_else() -> None:
    by_kind = {one["kind"]: one for one in SCALER}
    [rule] = by_kind["Role"]["rules"]
    names = rule.pop("resourceNames")
    assert sorted(names) == sorted(one.name for one in scaled_here().values())
    assert rule == {
        "apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "patch"]
    }  # fmt: skip
    for binding in of("RoleBinding"):
        [subject] = binding["subjects"]
        assert subject["name"] == by_kind["ServiceAccount"]["metadata"]["name"]
        assert binding["roleRef"]["name"] in {one["metadata"]["name"] for one in of("Role")}
    holders = [one for one in RUNNING
               if pod(one)["spec"]["serviceAccountName"] == "millrace-scaler"]  # fmt: skip
    assert holders == [by_kind["Deployment"]]
    assert {one["kind"] for one in EACH} & {"ClusterRole", "ClusterRoleBinding"} == set()


@pytest.mark.parametrize("found", of("ScaledObject"), ids=named)
def test_a_pool_scales_by_what_waits_for_it(found: Manifest) -> None:
    [worker] = [one for one in of("Deployment")
                if one["metadata"]["name"] == found["spec"]["scaleTargetRef"]["name"]]  # fmt: skip
    pool = {one["name"]: one["value"] for one in container(worker)["env"]}["MILLRACE_POOL"]
    for trigger, series in zip(
        found["spec"]["triggers"],
        ("millrace_predicted_drain_seconds", "millrace_pool_capacity_used"),
        strict=True,
    ):
        said = trigger["metadata"]
        assert (trigger["type"], trigger["metricType"]) == ("prometheus", "Value")
        assert f'{series}{{pool="{pool}"}}' in said["query"]
        assert list(wrong(said["query"])) == []
        assert all(isinstance(value, str) for value in said.values())
        assert float(said["threshold"]) > 0
    assert 1 <= found["spec"]["minReplicaCount"] <= found["spec"]["maxReplicaCount"]


@pytest.mark.parametrize(
    "found", [one for one in of("Deployment") if container(one)["args"] == ["worker"]], ids=named
)
def test_a_worker_has_the_time_that_its_drain_takes(found: Manifest) -> None:
    """20 s for what is in hand, 30 s until its supervisor kills it, and some to tell of it."""
    [shared] = [one["data"] for one in of("ConfigMap") if "MILLRACE_METRICS_PORT" in one["data"]]
    told = {"drain_s": float(shared["MILLRACE_DRAIN_S"])} if "MILLRACE_DRAIN_S" in shared else {}
    configured = Settings(**told)
    period_s = pod(found)["spec"]["terminationGracePeriodSeconds"]
    assert configured.drain_s < grace_s(configured) < period_s - 5


def test_a_worker_of_the_pool_gpu_has_one() -> None:
    [worker] = [one for one in of("Deployment") if one["metadata"]["name"] == "worker-gpu"]
    assert container(worker)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    told = {one["name"]: one["value"] for one in container(worker)["env"]}
    assert told["MILLRACE_DEVICE"] == "cuda"


def test_the_models_are_ones_and_their_pools_have_workers(tmp_path: Path) -> None:
    [text] = [one["data"]["models.toml"] for one in of("ConfigMap") if "models.toml" in one["data"]]
    (tmp_path / "models.toml").write_text(text)
    pools = set(models_file.load(tmp_path / "models.toml").pools())
    assert pools == {pod(one)["metadata"]["labels"].get("pool") for one in of("Deployment")} - {
        None
    }
