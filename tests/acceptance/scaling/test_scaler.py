"""`millrace scaler`: processes that set decided numbers in a cluster, of which one acts."""

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
from tests.support.command_line import run_millrace
from tests.support.platforms import POOLS
from tests.support.processes import spawned
from tests.support.servers import kubernetes_api
from tests.support.servers.kubernetes_api import KubernetesApi, Scale
from tests.support.wait import eventually

PLATFORM = POOLS
ROUTE = "/admin/pools/default"
WORKER = "ml/deployment/worker"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with kubernetes_api.running() as made:
        made.scales[WORKER] = Scale(1)
        yield made


def scaler(
    platform: Platform, api: KubernetesApi, folder: Path, **settings: str
) -> AbstractContextManager["subprocess.Popen[str]"]:
    """Starts a scaler."""
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


def test_one_of_two_scalers_sets_what_was_decided_and_the_other_goes_on(
    platform: Platform, http: httpx.Client, api: KubernetesApi, tmp_path: Path, stack: ExitStack
) -> None:
    workloads = {"MILLRACE_SCALE_WORKLOADS": "default=ml/deployment/worker"}
    scale(http, min_replicas=2)
    with scaler(platform, api, tmp_path, **workloads) as one:
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
