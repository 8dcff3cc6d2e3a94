"""Devices that fail: their workers leave, no item fails, and calls go to the others."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import child_of, until
from tests.support.clients import infer, repeated
from tests.support.command_line import run_millrace
from tests.support.jobs import assert_outputs, begun, completed, finish, run
from tests.support.models.entries import function
from tests.support.models.sick import ECC
from tests.support.pace import lease_s
from tests.support.platforms import Platforms, spec
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

ITEMS = 2000
MODELS = function("sick:shout", limits={"max_batch": 16, "slice_items": 32})


@pytest.fixture
def two(platforms: Platforms) -> Iterator[Platform]:
    with platforms.running(spec(MODELS, workers=2, lease_s=lease_s(3.0))) as platform:
        yield platform


def make_sick(platform: Platform, worker: str = "") -> Path:
    """Makes the device of a worker fail in every launch; of all, where none is named."""
    who = child_of(platform, worker).env["MILLRACE_METRICS_PORT"] if worker else "all"
    file = platform.settings.home / f"sick-{who}"
    file.touch()
    return file


def listed(client: Client, state: str) -> list[dict[str, Any]]:
    return [one for one in client.get("/workers")["data"] if one["state"] == state]


def submit(client: Client, items: int) -> str:
    return client.jobs.submit("shout", [f"item {n}" for n in range(items)]).id


def call(http: httpx.Client) -> tuple[float, int]:
    """When a call began, and its status."""
    began_s = time.monotonic()
    return began_s, infer(http, "shout", "call").status_code


def test_a_sick_worker_of_two_fails_no_item_and_hardly_a_call(two: Platform) -> None:
    with closing(Client(two.url)) as client, httpx.Client(base_url=two.url) as http:
        eventually(lambda: len(listed(client, "ready")) == 2)
        with repeated(lambda _: call(http), callers=1, pause_s=0.02) as calls:
            eventually(lambda: calls)
            job = submit(client, ITEMS)
            eventually(lambda: begun(client, job))
            flag, since_s = make_sick(two, "worker-1"), time.monotonic()
            [worker] = until(two, lambda: listed(client, "quarantined"))
            eventually(lambda: completed(client, job))
        statuses = [status for began_s, status in calls if began_s > since_s + 1]
        failed = client.jobs.get(job)["counts"]["failed"]
        errors = sum(status != 200 for status in statuses)
        print(f"sick_failed_items {failed} of {ITEMS}; {errors} of {len(statuses)} calls")
        assert failed == 0
        assert len(statuses) > 10
        assert errors <= 0.01 * len(statuses)
        assert_outputs(client.jobs.results(job, wait=False), [f"ITEM {n}" for n in range(ITEMS)])
        assert (worker["died"], worker["device_error"]) == ("sick", ECC)
        found = {one["code"]: one for one in client.get("/why")["diagnoses"]}["sick_device"]
        assert found["severity"] == "critical"
        assert ECC in found["words"]
        page = http.get(f"/dashboard/workers/{worker['id']}").text
        assert "quarantined" in page
        assert ECC in page

        flag.unlink()
        run_millrace("worker", "resume", str(worker["id"]), "--url", two.url)
        until(two, lambda: len(listed(client, "ready")) == 2)
        assert not listed(client, "quarantined")


def test_items_wait_while_every_worker_is_sick(two: Platform) -> None:
    flag = make_sick(two)
    with closing(Client(two.url)) as client:
        job = submit(client, 100)

        until(two, lambda: len(listed(client, "quarantined")) == 2)
        counts = client.jobs.get(job)["counts"]
        assert (counts["succeeded"], counts["failed"]) == (0, 0)
        flag.unlink()
        for worker in listed(client, "quarantined"):
            client.request("POST", f"/workers/{worker['id']}/undrain")

        finish(two, client, job)
        assert client.jobs.get(job)["counts"]["succeeded"] == 100


def test_an_item_that_breaks_devices_fails_alone_and_quarantines_no_worker(two: Platform) -> None:
    with closing(Client(two.url)) as client:
        eventually(lambda: len(listed(client, "ready")) == 2)
        [line] = run(two, client, "shout", ["poison"])  # the pool is idle
        assert line["error"]["code"] == "worker_lost"
        assert listed(client, "quarantined") == []
        restarts = sum(child.restarts for child in two.supervisor.children)
        assert restarts <= 4, "once beside others, three times alone"
        again = run(two, client, "shout", [f"item {n}" for n in range(10)])
        assert {one.outcome for one in again} == {"succeeded"}
