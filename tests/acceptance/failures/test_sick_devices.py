"""Devices that fail: their workers leave, no item fails, and calls go to the others."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.command_line import run_millrace
from tests.support.models.sick import ECC
from tests.support.platforms import Platforms, spec
from tests.support.wait import eventually

ITEMS = 2000
MODELS = """
[[model]]
name = "shout"
version = "1"
engine = "function"
options = { function = "tests.support.models.sick:shout" }
limits.max_batch = 16
limits.slice_items = 32
"""


@pytest.fixture
def two(platforms: Platforms) -> Iterator[Platform]:
    """A platform with two workers of its own."""
    with platforms.running(spec(MODELS, workers=2, lease_s=3.0)) as platform:
        yield platform


def make_sick(platform: Platform, worker: str = "") -> Path:
    """Makes the device of a worker fail in every launch; of all, where none is named."""
    children = {child.name: child for child in platform.supervisor.children}
    who = children[worker].env["MILLRACE_METRICS_PORT"] if worker else "all"
    file = platform.settings.home / f"sick-{who}"
    file.touch()
    return file


def listed(client: Client, state: str) -> list[dict[str, Any]]:
    return [one for one in client.get("/workers")["data"] if one["state"] == state]


def submit(client: Client, items: int) -> str:
    lines = (json.dumps(f"item {n}").encode() + b"\n" for n in range(items))
    return str(client.jobs.submit("shout", lines)["id"])


class Calls(threading.Thread):
    """Calls the model until it is stopped, and keeps when each call began and its status."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.ended: list[tuple[float, int]] = []
        self._client, self._ending = httpx.Client(base_url=url), threading.Event()

    def run(self) -> None:
        while not self._ending.wait(0.02):
            began_s = time.monotonic()
            answer = self._client.post("/infer", json={"model": "shout", "input": "call"})
            self.ended.append((began_s, answer.status_code))

    def stop(self) -> list[tuple[float, int]]:
        self._ending.set()
        self.join()
        self._client.close()
        return self.ended


def test_a_sick_worker_of_two_fails_no_item_and_hardly_a_call(two: Platform) -> None:
    with closing(Client(two.url)) as client:
        eventually(lambda: len(listed(client, "ready")) == 2)
        calls = Calls(two.url)
        calls.start()
        eventually(lambda: calls.ended)
        job = submit(client, ITEMS)
        eventually(lambda: client.jobs.get(job)["counts"]["succeeded"])
        flag, since_s = make_sick(two, "worker-1"), time.monotonic()

        def quarantined() -> list[dict[str, Any]]:
            two.poll()  # as `millrace up` does: a worker that ended is started again
            return listed(client, "quarantined")

        [worker] = eventually(quarantined)
        eventually(lambda: client.jobs.get(job)["state"] == "completed")
        statuses = [status for began_s, status in calls.stop() if began_s > since_s + 1]
        failed = client.jobs.get(job)["counts"]["failed"]
        errors = sum(status != 200 for status in statuses)
        print(f"sick_failed_items {failed} of {ITEMS}; {errors} of {len(statuses)} calls")
        assert failed == 0
        assert len(statuses) > 10
        assert errors <= 0.01 * len(statuses)
        outputs = [result["output"] for result in client.jobs.results(job, wait=False)]
        assert outputs == [f"ITEM {n}" for n in range(ITEMS)]

        assert (worker["died"], worker["device_error"]) == ("sick", ECC)
        found = {one["code"]: one for one in client.get("/why")["diagnoses"]}["sick_device"]
        assert found["severity"] == "critical"
        assert ECC in found["words"]
        page = httpx.get(f"{two.url}/dashboard/workers/{worker['id']}").text
        assert "quarantined" in page
        assert ECC in page

        flag.unlink()
        run_millrace("worker", "resume", str(worker["id"]), "--url", two.url)
        eventually(lambda: not quarantined() and len(listed(client, "ready")) == 2)


def test_items_wait_while_every_worker_is_sick(two: Platform) -> None:
    flag = make_sick(two)
    with closing(Client(two.url)) as client:
        job = submit(client, 100)

        def all_are_quarantined() -> bool:
            two.poll()
            return len(listed(client, "quarantined")) == 2

        eventually(all_are_quarantined)
        counts = client.jobs.get(job)["counts"]
        assert (counts["succeeded"], counts["failed"]) == (0, 0)
        flag.unlink()
        for worker in listed(client, "quarantined"):
            client.request("POST", f"/workers/{worker['id']}/undrain")

        def completed() -> bool:
            two.poll()
            return bool(client.jobs.get(job)["state"] == "completed")

        eventually(completed)
        assert client.jobs.get(job)["counts"]["succeeded"] == 100


def test_an_item_that_breaks_devices_fails_alone_and_quarantines_no_worker(two: Platform) -> None:
    with closing(Client(two.url)) as client:
        eventually(lambda: len(listed(client, "ready")) == 2)
        job = str(client.jobs.submit("shout", [b'"poison"\n'])["id"])  # the pool is idle

        def ended() -> bool:
            two.poll()
            return bool(client.jobs.get(job)["state"] == "completed")

        eventually(ended)
        [line] = client.jobs.results(job, wait=False)
        assert line["error"]["code"] == "worker_lost"
        assert listed(client, "quarantined") == []
        restarts = sum(child.restarts for child in two.supervisor.children)
        assert restarts <= 4, "once beside others, three times alone"
        job = submit(client, 10)
        eventually(ended)
        assert client.jobs.get(job)["counts"]["succeeded"] == 10
