"""Workers as operators see them, and drain them, by the API and on the command line; `millrace
scaler`: processes that set decided numbers of workers in a cluster, of which one acts."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.support.children import until
from tests.support.clients import infer
from tests.support.command_line import run_millrace
from tests.support.models.entries import model
from tests.support.platforms import GENERATING
from tests.support.processes import spawned
from tests.support.servers import kubernetes_api
from tests.support.servers.kubernetes_api import KubernetesApi, Scale
from tests.support.wait import eventually

PLATFORM = GENERATING
MODELS = model("seldom", "echo", on_demand=True)
ROUTE = "/admin/pools/default"
WORKER = "ml/deployment/worker"


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with kubernetes_api.running() as made:
        made.scales[WORKER] = Scale(1)
        yield made


def scaler(
    platform: Platform, api: KubernetesApi, folder: Path, **settings: str
) -> AbstractContextManager["subprocess.Popen[str]"]:
    environ = {**os.environ, **platform.settings.environment(), **settings}
    environ |= {"KUBECONFIG": str(api.kubeconfig(folder)), "MILLRACE_METRICS_PORT": "0"}
    command = [sys.executable, "-m", "ops", "scaler"]
    return spawned(command, env=environ, stderr=subprocess.PIPE)


def scale(http: httpx.Client, **policy: Any) -> None:
    terms = {"max_replicas": 9, "cooldown_s": 3600, "actuator": "kubernetes", **policy}
    http.put(f"{ROUTE}/scaling", json={"policy": terms}).raise_for_status()


def failures(http: httpx.Client) -> list[tuple[str, str]]:
    """Returns the actors and reasons of what failed, the oldest first."""
    events = http.get(ROUTE).json()["events"]
    return [(one["actor"], one["reason"]) for one in reversed(events) if one["act"] == "failed"]


@pytest.mark.nightly
def test_one_of_two_scalers_sets_what_was_decided_and_the_other_goes_on(
    platform: Platform, http: httpx.Client, api: KubernetesApi, tmp_path: Path
) -> None:
    workloads = {"MILLRACE_SCALE_WORKLOADS": "default=ml/deployment/worker"}
    scale(http, min_replicas=2)
    with scaler(platform, api, tmp_path, **workloads) as one, ExitStack() as stack:
        eventually(lambda: api.scales[WORKER].replicas == 2)
        two = stack.enter_context(scaler(platform, api, tmp_path, **workloads))
        api.failing = 403
        scale(http, min_replicas=4)
        eventually(lambda: failures(http))
        [(actor, reason)] = failures(http)
        assert (actor, "403" in reason) == ("scaler", True)
        api.failing = 0
        eventually(lambda: api.scales[WORKER].replicas == 4)
        one.kill()
        scale(http, min_replicas=5)
        eventually(lambda: api.scales[WORKER].replicas == 5)
        assert len(failures(http)) == 1
        assert api.patches == [(WORKER, 2), (WORKER, 4), (WORKER, 5)]
        shown = run_millrace("scale", "history", "default", "--url", platform.url).output
        assert "(by scaler)" in shown
        two.send_signal(signal.SIGTERM)
        eventually(lambda: two.poll() is not None)
        assert two.returncode == 0
    http.delete(f"{ROUTE}/scaling").raise_for_status()


@pytest.mark.parametrize(
    ("workloads", "why"),
    [("", "name the workload of a pool"), ("default=worker", "write pool=namespace/deployment")],
)
def test_a_scaler_that_knows_no_workload_says_so_and_ends(
    platform: Platform, api: KubernetesApi, tmp_path: Path, workloads: str, why: str
) -> None:
    with scaler(platform, api, tmp_path, MILLRACE_SCALE_WORKLOADS=workloads) as process:
        _, said = process.communicate()
    assert (process.returncode, why in said) == (1, True), said


def command(platform: Platform, *words: str) -> str:
    return run_millrace(*words, "--url", platform.url).output


def ready(http: httpx.Client) -> dict[str, Any]:
    """The worker that serves now; those that modules before have ended are listed too."""
    found = eventually(
        lambda: [one for one in http.get("/workers").json()["data"] if one["state"] == "ready"]
    )
    return dict(found[0])


def test_a_worker_is_listed_with_its_models(http: httpx.Client) -> None:
    worker = ready(http)
    assert (worker["state"], worker["drain_asked"], worker["died"]) == ("ready", False, None)
    models = {one["model"]: one["state"] for one in worker["models"]}
    assert models["echo@1"] == "ready"
    assert http.get(f"/workers/{worker['id']}").json()["name"] == worker["name"]

    for path in ("/workers/999999", "/workers/0", "/workers/x"):  # which are none
        assert http.get(path).status_code in (404, 422)
        assert http.post(f"{path}/drain").status_code in (404, 422)


def test_drain_and_resume_by_the_command_line(platform: Platform, http: httpx.Client) -> None:
    until(platform, lambda: infer(http, "seldom", "x").is_success)
    listed = json.loads(command(platform, "workers", "--json"))["data"]
    id = str(ready(http)["id"])
    assert id in {str(worker["id"]) for worker in listed}
    assert "drain asked" in command(platform, "worker", "drain", id)

    def state() -> str:
        return str(http.get(f"/workers/{id}").json()["state"])

    def states_of_seldom() -> object:
        models = http.get("/models").json()["data"]
        return next(one["states"] for one in models if one["name"] == "seldom")

    eventually(lambda: state() == "draining")
    eventually(lambda: infer(http, "echo", "x").status_code == 503)
    assert "drain asked" not in command(platform, "worker", "resume", id)

    until(platform, lambda: infer(http, "echo", "x").is_success)
    assert state() == "stopped"
    until(platform, lambda: states_of_seldom() == {"ready": 1})  # though nobody calls it
    assert id in command(platform, "workers")
    assert http.post(f"/workers/{id}/drain").status_code == 409
    log = http.get("/audit?limit=500").json()["data"]
    mine = [one for one in log if one["act"].startswith("worker.") and id in str(one["target"])]
    assert [one["act"] for one in mine] == ["worker.undrain", "worker.drain"]
