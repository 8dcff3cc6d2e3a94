"""The manifests: valid, and true to each other and to the product. Nothing is applied."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from jobs.models import models_file
from jobs.settings import Settings
from jobs.states import API_POOL
from ops.supervisor.worker import grace_s
from tests.support.cases import each
from tests.support.command_line import SETTINGS, is_command
from tests.unit.ops.deploy.kit import DEPLOY, wrong
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


def name_of(found: Manifest) -> str:
    return str(found["metadata"]["name"])


def named(found: Manifest) -> str:
    return f"{found['kind']}/{name_of(found)}"


def of(kind: str) -> list[Manifest]:
    return [found for found in EACH if found["kind"] == kind]


def pod(found: Manifest) -> Any:
    return found["spec"]["template"]


def labels(found: Manifest) -> Any:
    return pod(found)["metadata"]["labels"]


def container(found: Manifest) -> Any:
    [only] = pod(found)["spec"]["containers"]
    return only


def told(found: Manifest) -> dict[str, str]:
    """Its own environment, without what a secret or another object holds."""
    return {one["name"]: one.get("value", "") for one in container(found).get("env", ())}


def ports(found: Manifest) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(found).get("ports", ())}


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items()


DEPLOYMENTS = {name_of(found): found for found in of("Deployment")}
WORKERS = [one for one in DEPLOYMENTS.values() if container(one)["args"] == ["worker"]]
RUNNING = [*DEPLOYMENTS.values(), *of("Job")]
POLICIES = {name_of(found): found["spec"] for found in of("NetworkPolicy")}
[SHARED] = [one["data"] for one in of("ConfigMap") if "MILLRACE_METRICS_PORT" in one["data"]]


@pytest.mark.heavy
def test_yaml_is_tidy() -> None:
    command = [sys.executable, "-m", "yamllint", "--strict", "-c", DEPLOY / ".yamllint", DEPLOY]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_kubernetes_would_take_each_into_the_namespace() -> None:
    for found, case in each(EACH, name=named):
        with case:
            where = found["metadata"]["name" if found["kind"] == "Namespace" else "namespace"]
            assert where == "millrace"
            if found["kind"] not in NEEDED:
                kubernetes_validate.validate(found, SCHEMAS, strict=True)
            for path in NEEDED.get(found["kind"], ()):
                assert reduce(getitem, path, found["spec"])


@pytest.mark.heavy
def test_kubectl_builds_the_same() -> None:
    if not (kubectl := shutil.which("kubectl")):
        pytest.skip("kubectl isn't installed")
    for kind, case in each(KINDS):
        with case:
            command = [kubectl, "kustomize", KUBERNETES / "overlays" / kind]
            done = subprocess.run(command, capture_output=True, text=True)
            made = list(yaml.safe_load_all(done.stdout))
            assert sorted(map(named, made)) == sorted(map(named, EVERYTHING[kind]))
            images = {container(one)["image"] for one in made if one["kind"] == "Deployment"}
            assert all("/" in image and ":" in image for image in images)


def test_a_process_is_told_settings_commands_and_volumes_that_there_are() -> None:
    held = {(one["kind"], name_of(one)): one for one in EACH}
    for found, case in each(RUNNING, name=named):
        with case:
            assert is_command(container(found)["args"])
            names = set(told(found))
            for source in container(found)["envFrom"]:
                [(kind, ref)] = source.items()
                holder = held["Secret" if kind == "secretRef" else "ConfigMap", ref["name"]]
                names |= {*holder.get("data", ()), *holder.get("stringData", ())}
            assert names <= SETTINGS | AWS
            assert "MILLRACE_DATABASE_URL" in names
            volumes = {volume["name"]: volume for volume in pod(found)["spec"]["volumes"]}
            mounts = container(found)["volumeMounts"]
            assert {mount["name"] for mount in mounts} == volumes.keys()
            maps = {v["configMap"]["name"] for v in volumes.values() if "configMap" in v}
            assert {("ConfigMap", name) for name in maps} <= held.keys()
            assert mounts[0]["mountPath"] == "/tmp"  # bodies are spooled


def test_a_process_can_do_no_more_than_it_must() -> None:
    for found, case in each(RUNNING, name=named):
        with case:
            spec, inside = pod(found)["spec"], container(found)
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            scaler = spec["serviceAccountName"] == "millrace-scaler"
            assert spec["automountServiceAccountToken"] is scaler
            assert inside["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= inside["resources"]["requests"].keys()
            assert "memory" in inside["resources"]["limits"]


def test_selectors_find_the_pods_of_their_deployment_and_no_others() -> None:
    for found, case in each(DEPLOYMENTS.values(), name=named):
        with case:
            selector = found["spec"]["selector"]
            matching = [one for one in DEPLOYMENTS.values() if selects(selector, labels(one))]
            assert matching == [found]
            for spread in pod(found)["spec"]["topologySpreadConstraints"]:
                assert selects(spread["labelSelector"], labels(found))
            budgets = of("PodDisruptionBudget")
            its = [one for one in budgets if selects(one["spec"]["selector"], labels(found))]
            assert [name_of(one) for one in its] == [name_of(found)]


def test_probes_and_the_service_ask_at_ports_that_there_are() -> None:
    [service] = of("Service")
    api = DEPLOYMENTS["api"]
    assert service["spec"]["selector"].items() <= labels(api).items()
    assert service["spec"]["ports"][0]["targetPort"] in ports(api)
    assert int(told(api)["MILLRACE_PORT"]) == ports(api)["http"]
    for found, case in each(DEPLOYMENTS.values(), name=named):
        with case:
            inside = container(found)
            probes = {name: probe for name, probe in inside.items() if name.endswith("Probe")}
            assert "readinessProbe" in probes
            assert "livenessProbe" in probes or found in WORKERS  # its supervisor is one
            for probe in probes.values():
                asked = probe["httpGet"]
                assert asked["port"] in ports(found)
                paths = {"/livez", "/readyz"} if asked["port"] == "http" else {"/metrics"}
                assert asked["path"] in paths


def test_metrics_are_where_monitor_and_policy_look() -> None:
    port = int(SHARED["MILLRACE_METRICS_PORT"])
    [monitor] = of("PodMonitor")
    assert [end["port"] for end in monitor["spec"]["podMetricsEndpoints"]] == ["metrics"]
    assert POLICIES["metrics-in"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port}]
    for found, case in each(DEPLOYMENTS.values(), name=named):
        with case:
            assert ports(found)["metrics"] == port
            assert selects(monitor["spec"]["selector"], labels(found))
            job = labels(found)[monitor["spec"]["jobLabel"]]
            assert job.startswith("millrace-")  # MillraceScrapeDown


def test_a_pod_may_do_what_policies_say_and_nothing_else() -> None:
    [default] = [spec for spec in POLICIES.values() if spec["podSelector"] == {}]
    assert set(default["policyTypes"]) == {"Ingress", "Egress"}
    assert not default.keys() & {"ingress", "egress"}
    shared = {"nothing-else", "names-out", "services-out", "metrics-in"}
    own = {
        "millrace-api": {"api-in"},
        "millrace-keeper": {"webhooks-out"},
        "millrace-scaler": {"kubernetes-out"},
    }
    for found, case in each(RUNNING, name=named):
        with case:
            its = labels(found)
            on_it = {name for name, spec in POLICIES.items() if selects(spec["podSelector"], its)}
            assert on_it == shared | own.get(its["app"], set())
    [webhooks] = POLICIES["webhooks-out"]["egress"]
    kept_out = {net for to in webhooks["to"] for net in to["ipBlock"]["except"]}
    private = "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 169.254.0.0/16 fc00::/7"
    assert kept_out >= set(private.split())


def test_what_scales_itself_has_no_number_and_one_who_scales_it_for_all_pools(
    tmp_path: Path,
) -> None:
    scalers = [*of("HorizontalPodAutoscaler"), *of("ScaledObject")]
    free = {name for name, found in DEPLOYMENTS.items() if "replicas" not in found["spec"]}
    assert sorted(map(scaled_by, scalers)) == sorted(free)
    assert free == {"api", "worker-cpu", "worker-gpu"}
    [text] = [one["data"]["models.toml"] for one in of("ConfigMap") if "models.toml" in one["data"]]
    (tmp_path / "models.toml").write_text(text)
    pools = set(models_file.load(tmp_path / "models.toml").pools())
    assert pools == {labels(one)["pool"] for one in WORKERS}


def scaled_by(scaler: Manifest) -> str:
    return str(scaler["spec"]["scaleTargetRef"]["name"])


def scaled_here() -> dict[str, workloads.Workload]:
    """Workloads of the scaler, by pool."""
    [scaler] = [one for one in SCALER if one["kind"] == "Deployment"]
    return dict(workloads.parse(told(scaler)["MILLRACE_SCALE_WORKLOADS"]))


def test_a_pool_is_scaled_by_keda_or_by_the_scaler_and_never_by_both() -> None:
    ours = {one.name: one for one in scaled_here().values()}
    for kind, case in each(KINDS):
        with case:
            [kustomization] = documents(KUBERNETES / "overlays" / kind / "kustomization.yaml")
            listed = {*kustomization["resources"]} & {"keda.yaml", "../../keda", "../../scaler"}
            assert listed in ({"keda.yaml", "../../keda"}, {"../../scaler"})
            keda = documents(KUBERNETES / "overlays" / kind / "keda.yaml")
            keda += built(KUBERNETES / "keda")
            assert {one["kind"] for one in keda} == {"ScaledObject"}
            rest = [one for one in EVERYTHING[kind] if one not in keda]
            others = {scaled_by(one) for one in rest
                      if one["kind"] in ("ScaledObject", "HorizontalPodAutoscaler")}  # fmt: skip
            assert not ours.keys() & others
            its = {ours[scaled_by(one)] for one in keda}
            assert {(one.kind, one.namespace) for one in its} == {("deployment", "millrace")}


def test_the_scaler_may_read_and_set_the_scale_of_each_pool_and_nothing_else() -> None:
    pools = {labels(one)["pool"]: name_of(one) for one in WORKERS} | {API_POOL: "api"}
    assert {pool: one.name for pool, one in scaled_here().items()} == pools
    by_kind = {one["kind"]: one for one in SCALER}
    [rule] = by_kind["Role"]["rules"]
    assert rule == {
        "apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "patch"],
        "resourceNames": rule["resourceNames"],
    }  # fmt: skip
    assert sorted(rule["resourceNames"]) == sorted(one.name for one in scaled_here().values())
    for binding in of("RoleBinding"):
        [subject] = binding["subjects"]
        assert subject["name"] == name_of(by_kind["ServiceAccount"])
        assert binding["roleRef"]["name"] in map(name_of, of("Role"))
    holders = [one for one in RUNNING
               if pod(one)["spec"]["serviceAccountName"] == "millrace-scaler"]  # fmt: skip
    assert holders == [by_kind["Deployment"]]
    assert {one["kind"] for one in EACH} & {"ClusterRole", "ClusterRoleBinding"} == set()


def test_a_pool_scales_by_what_waits_for_it() -> None:
    for found, case in each(of("ScaledObject"), name=named):
        with case:
            pool = told(DEPLOYMENTS[scaled_by(found)]).get("MILLRACE_POOL", API_POOL)
            metrics = ("predicted_drain_seconds", "pool_capacity_used")
            if pool == API_POOL:
                metrics = ("pool_requests_per_second", "pool_event_loop_lag_seconds")
            for metric, trigger in zip(metrics, found["spec"]["triggers"], strict=True):
                assert f'millrace_{metric}{{pool="{pool}"}}' in asked_by(trigger)
            assert 1 <= found["spec"]["minReplicaCount"] <= found["spec"]["maxReplicaCount"]


def asked_by(trigger: Manifest) -> str:
    """Returns the query of a trigger, which is checked."""
    said = trigger["metadata"]
    assert trigger["type"] == "prometheus"
    each_s = "per_second" in said["query"]  # a sum, of which each replica has a share
    assert trigger["metricType"] == ("AverageValue" if each_s else "Value")
    assert list(wrong(said["query"])) == []
    assert all(isinstance(value, str) for value in said.values())
    assert float(said["threshold"]) > 0
    return str(said["query"])


def test_a_worker_has_the_time_that_its_drain_takes_and_its_device() -> None:
    """20 s for what is in hand, 30 s until its supervisor kills it, and some to tell of it."""
    drain = SHARED.get("MILLRACE_DRAIN_S")
    configured = Settings(drain_s=float(drain)) if drain else Settings()
    for found, case in each(WORKERS, name=named):
        with case:
            period_s = pod(found)["spec"]["terminationGracePeriodSeconds"]
            assert configured.drain_s < grace_s(configured) < period_s - 5
    gpu = DEPLOYMENTS["worker-gpu"]
    assert container(gpu)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert told(gpu)["MILLRACE_DEVICE"] == "cuda"
