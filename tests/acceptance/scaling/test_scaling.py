"""The autoscaler of `millrace up`: workers and apis come and go as it decides, and nothing is lost;
the page on capacity shows what its commands print."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from jobs.settings import Settings
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support import pages
from tests.support.clients import infer, repeated
from tests.support.command_line import run_millrace
from tests.support.models.entries import model
from tests.support.platforms import LIGHT, copy_database, no_durability
from tests.support.wait import PATIENCE_S, eventually

pytestmark = pytest.mark.nightly

ROUTE = "/admin/pools"
RARE = model("rare", "echo", on_demand=True)


@pytest.fixture
def platform(tmp_path_factory: pytest.TempPathFactory, database_folder: Path) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("scaling")
    (folder / "models.toml").write_text(LIGHT + RARE)
    copy_database(database_folder, folder / "home")
    configured = Settings(home=folder / "home", port=free_port(), models=folder / "models.toml")
    with no_durability():
        made = Platform(configured, logs=folder / "logs", most_workers=3, most_apis=2)
        made.start()
        yield made
        made.stop()


def scale(platform: Platform, name: str = "default", **policy: Any) -> None:
    """Sets a policy without pauses."""
    terms = {"max_replicas": 3, "cooldown_s": 0, "min_stay_s": 0, "actuator": "local", **policy}
    httpx.put(f"{platform.url}{ROUTE}/{name}/scaling", json={"policy": terms}).raise_for_status()


def pool(platform: Platform, name: str = "default") -> dict[str, Any]:
    platform.poll()
    found: dict[str, Any] = httpx.get(f"{platform.url}{ROUTE}/{name}").json()
    return found


def client_of(platform: Platform, pid: int) -> httpx.Client | None:
    """A client whose connection is to the api with this pid; None: the kernel chose another."""
    client = httpx.Client(base_url=platform.url, timeout=PATIENCE_S)
    stream = client.get("/livez").extensions["network_stream"]
    ours = stream.get_extra_info("client_addr")
    if any(one.raddr == ours for one in psutil.Process(pid).net_connections("tcp4")):
        return client
    client.close()
    return None


def test_workers_come_and_go_as_is_decided_and_a_job_loses_nothing(platform: Platform) -> None:
    assert pool(platform)["scaling"] is None
    scale(platform, min_replicas=2)
    eventually(lambda: pool(platform)["workers"].get("ready") == 2)
    items = {"model": "batchstring", "items": [{"input": f"text {n}"} for n in range(5000)]}
    job = httpx.post(f"{platform.url}/jobs", json=items).json()["id"]
    scale(platform, min_replicas=1, drain_s=3600)
    eventually(lambda: pool(platform)["workers"] == {"ready": 1})
    eventually(lambda: httpx.get(f"{platform.url}/jobs/{job}").json()["state"] == "completed")
    found = pool(platform)
    acts = [(event["act"], event["desired"]) for event in reversed(found["events"])]
    assert acts == [("set", None), ("up", 2), ("set", 2), ("down", 1)]
    died = [worker["died"] for worker in httpx.get(f"{platform.url}/workers").json()["data"]]
    assert died == [None, None]
    assert found["load"]["capacity_used"] is not None
    page = httpx.get(f"{platform.url}/dashboard/pools/default").text
    assert "calls bring the work" in page or "have done for" in page
    token = re.findall(r'name="token" value="([^"]+)"', page)[-1]
    form, ours = {"token": token, "reason": "a <test>"}, {"Sec-Fetch-Site": "same-origin"}
    pause = f"{platform.url}/dashboard/pools/default/pause"
    paused = httpx.post(pause, data=form, headers=ours)
    assert paused.status_code == 303, paused.text
    assert pool(platform)["scaling"]["paused"]
    assert "a &lt;test&gt;" in httpx.get(f"{platform.url}/dashboard/pools/default").text
    assert 'href="/dashboard/pools/default"' in httpx.get(f"{platform.url}/dashboard/pools").text


def test_an_api_comes_with_requests_and_goes_without_a_lost_call(platform: Platform) -> None:
    patient = {"max_replicas": 2, "forecast": 0, "lag_ms": 60_000}  # a starved machine lags too
    eventually(lambda: pool(platform, "api")["workers"] == {"ready": 1})
    scale(platform, "api", **patient, requests_s=0.1)
    eventually(lambda: pool(platform, "api")["workers"] == {"ready": 2})  # it asks often enough
    [ending] = [child for child in platform.supervisor.children if child.name == "api-2"]
    with ExitStack() as opened:
        clients = [
            opened.enter_context(closing(eventually(lambda: client_of(platform, ending.pid))))
            for _ in range(4)
        ]
        with repeated(lambda n: infer(clients[n], "echo", "x").status_code, 4, 0.01) as answers:
            scale(platform, "api", **patient, requests_s=1e6)
            eventually(lambda: platform.poll() or not ending.alive())
            before = len(answers)
            eventually(lambda: len(answers) > before)
    assert {*answers} <= {200, 429, 504}
    assert 200 in answers
    assert ending.process.returncode == 0
    eventually(lambda: pool(platform, "api")["workers"] == {"ready": 1})
    acts = [(one["act"], one["desired"]) for one in pool(platform, "api")["events"]]
    assert acts[0] == ("down", 1)
    assert ("up", 2) in acts
    page = httpx.get(f"{platform.url}/dashboard/pools/api").text
    assert "apis: 1 ready" in page
    status = partial(run_millrace, "scale", "status", "api", MILLRACE_URL=platform.url)
    eventually(lambda: "requests/s" in status().output)
    assert "1 to 2 by local" in status().output


def test_the_command_line_sets_pauses_shows_and_stops_it(platform: Platform) -> None:
    def millrace(*words: str, fails: bool = False) -> str:
        return run_millrace("scale", *words, status=int(fails), MILLRACE_URL=platform.url).output

    scale(platform, min_replicas=1)
    rule = "queue above 500 for 30 s: +3"
    said = millrace("set", "default", "--max", "2", "--actuator", "plan", "--rule", rule)
    assert "1 to 2 by plan" in said
    policy = pool(platform)["scaling"]["policy"]
    assert (policy["rules"], policy["cooldown_s"]) == ([rule], 0)  # what was there before stays
    assert "paused" in millrace("pause", "default", "--replicas", "1", "--reason", "a test")
    assert "desired 1" in millrace("resume", "default")
    assert "used 0%" in millrace("status")
    assert "pause 1: a test (by " in millrace("history", "default")
    assert "desired" not in millrace("off", "default")
    assert "write it as in" in millrace("set", "default", "--rule", "more!", fails=True)
    assert "no model or worker is in the pool nope" in millrace("status", "nope", fails=True)
    assert "has no autoscaler" in millrace("pause", "default", fails=True)


def test_the_worker_that_alone_has_a_model_stays(platform: Platform) -> None:
    scale(platform, min_replicas=2, max_replicas=2)
    eventually(lambda: pool(platform)["workers"] == {"ready": 2})

    def workers() -> dict[int, set[str]]:
        """Returns the models that are ready, by worker."""
        platform.poll()
        return {
            one["id"]: {its["model"] for its in one["models"] if its["state"] == "ready"}
            for one in httpx.get(f"{platform.url}/workers").json()["data"]
            if one["state"] == "ready"
        }

    def answers() -> bool:
        return httpx.post(f"{platform.url}/infer", json={"model": "rare", "input": "x"}).is_success

    first, last = sorted(workers())
    drain = f"{platform.url}/workers/{first}"
    httpx.post(f"{drain}/drain").raise_for_status()
    eventually(lambda: answers() and "rare@1" in workers().get(last, ()))
    httpx.post(f"{drain}/undrain").raise_for_status()
    eventually(lambda: len(workers()) == 2)  # in the place of the first there is a younger one
    scale(platform, min_replicas=1, max_replicas=1)
    eventually(lambda: pool(platform)["workers"] == {"ready": 1})
    assert list(workers()) == [last]
    assert answers()


def test_the_figures_of_the_page_on_capacity_are_what_its_commands_print(tmp_path: Path) -> None:
    path = pages.ROOT / "ops" / "docs" / "how-to" / "operations" / "capacity.md"
    page = pages.recipe(path.name, path.read_text())
    pages.lay_out(tmp_path, [page], models="")
    printed = pages.run(page, tmp_path, {})
    assert pages.as_shown(page.shown).fullmatch(printed), printed
