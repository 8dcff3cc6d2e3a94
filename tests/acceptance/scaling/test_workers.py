"""Workers as operators see them, by the API and on the command line; draining is noted."""

import json
from typing import Any

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.support.children import until
from tests.support.command_line import run_millrace
from tests.support.platforms import GENERATING
from tests.support.wait import eventually

PLATFORM = GENERATING


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


@pytest.mark.parametrize("path", ["/workers/999999", "/workers/0", "/workers/x"])
def test_a_worker_that_is_none_is_said_so(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code in (404, 422)
    assert http.post(f"{path}/drain").status_code in (404, 422)


def test_drain_and_resume_by_the_command_line(platform: Platform, http: httpx.Client) -> None:
    listed = json.loads(command(platform, "workers", "--json"))["data"]
    id = str(ready(http)["id"])
    assert id in {str(worker["id"]) for worker in listed}
    assert "drain asked" in command(platform, "worker", "drain", id)

    def state() -> str:
        return str(http.get(f"/workers/{id}").json()["state"])

    eventually(lambda: state() == "draining")
    refused = http.post("/infer", json={"model": "echo", "input": "x"})
    assert refused.status_code == 503
    assert "drain asked" not in command(platform, "worker", "resume", id)

    call = {"model": "echo", "input": "x"}
    until(platform, lambda: http.post("/infer", json=call).status_code == 200)
    assert state() == "stopped"
    assert id in command(platform, "workers")
    assert http.post(f"/workers/{id}/drain").status_code == 409
    log = http.get("/audit?limit=500").json()["data"]
    mine = [entry for entry in log if entry["act"].startswith("worker.")]
    acts = [entry["act"] for entry in mine if id in str(entry["target"])]
    assert acts == ["worker.undrain", "worker.drain"]
