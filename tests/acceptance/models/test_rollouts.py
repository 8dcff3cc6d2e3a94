"""Rollouts on a whole platform: workers record launches, and the keeper judges by them; versions
of a models file that follow one another while nothing is lost."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support import children
from tests.support.clients import chat, infer, repeated
from tests.support.command_line import run_millrace
from tests.support.jobs import completed
from tests.support.models.entries import function, model
from tests.support.pace import lease_s
from tests.support.platforms import Platforms, spec
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

MODELS = (
    "".join(model(name, "echo", version=n) for name in ("breaks", "liked", "kills") for n in "12")
    + "".join(model("chat", "echo_chat", version=n) for n in "12")
    + function("broken:moody", "breaks", version="3", samples=["warm"])
    + function("broken:deadly", "kills", version="4", samples=["warm"])
)
BREAKS_THE_THIRD, KILLS_THE_FOURTH = "raise", "segv"
HASTY = {"steps": [50, 100], "min_launches": 10, "min_stay_s": 0, "cost_hold": 0.5}
PLATFORM = spec(MODELS)


@pytest.fixture(autouse=True)
def _all_are_ready(http: httpx.Client) -> None:
    """Waits also for a worker that the test before has killed."""
    models = ["breaks@3", "liked@1", "liked@2", "kills@1", "kills@4", "chat@1", "chat@2"]
    paths = [f"/models/{model}/ready" for model in models]
    eventually(lambda: all(http.get(path).status_code == 200 for path in paths))


def start(http: httpx.Client, canary: str, model: str, **more: Any) -> str:
    body = {"model": model, "canary": canary, "policy": HASTY, **more}
    answer = http.post("/rollouts", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def call(http: httpx.Client, model: str, value: str, user: str = "") -> str:
    """Returns the version that answered; a failure must be the third one's."""
    headers = {"X-Millrace-User": user} if user else {}
    answer = http.post("/infer", json={"model": model, "input": value}, headers=headers)
    version = answer.headers["X-Millrace-Model"].removeprefix(f"{model}@")
    if answer.status_code == 200:
        assert answer.json()["version"] == version
    else:
        assert "can't stand it" in answer.text
        assert version == "3"
    return version


def until(
    http: httpx.Client, id: str, reached: Callable[[Any], bool], make_calls: Callable[[], Any]
) -> Any:
    """Makes calls until a rollout is as wanted, and returns it."""

    def found() -> Any:
        make_calls()
        rollout = http.get(f"/rollouts/{id}").json()
        return reached(rollout) and rollout

    return eventually(found)


def has_ended(rollout: Any) -> bool:
    return rollout["state"] not in ("running", "held")


def test_a_canary_that_fails_is_rolled_back_while_the_stable_version_answers(
    http: httpx.Client,
) -> None:
    id = start(http, "3", "breaks", stable="1")
    values = BREAKS_THE_THIRD, "a", BREAKS_THE_THIRD
    rollout = until(http, id, has_ended, lambda: [call(http, "breaks", value) for value in values])
    assert rollout["state"] == "rolled_back", rollout
    assert rollout["reason"].startswith("launches with a failed call: failed "), rollout
    assert rollout["events"][0]["act"] == "roll_back"
    assert rollout["events"][0]["figures"]["lanes"]["control"]["failed"] == 0
    eventually(lambda: {call(http, "breaks", "a") for _ in range(20)} == {"1"})
    other = http.post("/rollouts", json={"model": "breaks", "canary": "3", "stable": "2"})
    assert other.status_code == 409, other.text
    assert "means version '1'" in other.json()["detail"]


def test_sticky_callers_of_a_canary_like_the_stable_version_move_it_on(http: httpx.Client) -> None:
    id = start(http, "2", "liked", stable="1", sticky="user")
    users = [f"user-{n}" for n in range(60)]

    def make_calls() -> dict[str, str]:
        return {user: call(http, "liked", "a", user) for user in users}

    eventually(lambda: "2" in make_calls().values())
    before = make_calls()
    assert make_calls() == before or http.get(f"/rollouts/{id}").json()["percent"] == 100
    rollout = until(http, id, lambda one: len(one["events"]) > 1, make_calls)
    advanced = rollout["events"][-2]
    assert advanced["act"] == "advance", rollout
    assert advanced["reason"].endswith(" callers at 50 % without a finding: on to 100 %")
    rollout = until(http, id, has_ended, make_calls)
    assert rollout["state"] == "promoted", rollout
    assert call(http, "liked", "a") == "2"


def test_calls_that_generate_move_a_rollout_on(http: httpx.Client) -> None:
    id = start(http, "2", "chat")
    body = {"model": "chat", **chat("one two three")}

    def make_calls() -> None:
        for _ in range(10):
            assert http.post("/v1/chat/completions", json=body).status_code == 200

    rollout = until(http, id, lambda one: one["percent"] == 100 or has_ended(one), make_calls)
    advanced = next(one for one in rollout["events"] if one["act"] == "advance")
    assert advanced["figures"]["lanes"]["control"]["calls"] > 0
    assert {"ttft", "itl"} <= set(advanced["figures"]["evidence"])


def test_a_canary_that_kills_its_worker_is_rolled_back(
    platform: Platform, http: httpx.Client
) -> None:
    policy = {**HASTY, "steps": [5, 100], "min_launches": 10_000, "false_alarm": 0.2}
    id = start(http, "4", "kills", stable="1", policy=policy)

    def status(value: str) -> int:
        return infer(http, "kills", value, timeout_ms=5000).status_code

    def make_calls() -> None:
        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(status, value) for value in ["a"] * 80 + [KILLS_THE_FOURTH] * 20]
            # As `millrace up` does: a worker that died is started again.
            children.until(platform, lambda: all(one.done() for one in calls))

    rollout = until(http, id, has_ended, make_calls)
    assert rollout["state"] == "rolled_back", rollout
    assert rollout["reason"].startswith("launches with a failed call: failed "), rollout
    children.until(platform, lambda: status("a") == 200)
    assert call(http, "kills", KILLS_THE_FOURTH) == rollout["stable"]


LIMITS = {"max_batch": 10, "slice_items": 50}


def entry(version: str) -> str:
    return function("paced:steady", "x", version=version, target_ms=5000, limits=LIMITS)


def steady_call(http: httpx.Client) -> tuple[int, str]:
    """Status, and the version that answered or what was wrong."""
    body = {"model": "x", "input": "a call", "timeout_ms": 20_000}
    answer = http.post("/infer", json=body)
    if not answer.is_success:
        return answer.status_code, answer.text
    assert answer.json()["output"] == "a call"
    return answer.status_code, answer.json()["version"]


@pytest.fixture
def changing(platforms: Platforms) -> Iterator[Platform]:
    with platforms.running(spec(entry("1"), lease_s=lease_s(3.0))) as started:
        yield started


def declare(path: Path, *versions: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(map(entry, versions)))
    os.replace(fresh, path)


def ready_versions(client: Client) -> set[str]:
    shown = client.request("GET", "/models")["data"]
    return {model["version"] for model in shown if model["ready"]}


def test_a_version_follows_another_while_calls_and_a_job_run_and_none_is_lost(
    changing: Platform,
) -> None:
    models = changing.settings.models
    assert models
    texts = [f"item {n}" for n in range(800)]  # eight seconds alone
    with closing(Client(changing.url)) as client, httpx.Client(base_url=changing.url) as http:
        job = client.jobs.submit("x@1", texts).id
        with repeated(lambda _: steady_call(http), callers=4) as answers:
            eventually(lambda: answers)
            declare(models, "1", "2")
            eventually(lambda: ready_versions(client) == {"1", "2"})
            declare(models, "2")
            eventually(lambda: ready_versions(client) == {"2"})
            assert completed(client, job)
        assert set(answers) == {(200, "1"), (200, "2")}
        assert [line["output"] for line in client.jobs.results(job, wait=False)] == texts


def test_models_shows_how_each_version_stands(changing: Platform) -> None:
    [shown] = httpx.get(f"{changing.url}/models").json()["data"]
    assert (shown["ready"], shown["workers"], shown["states"]) == (True, 1, {"ready": 1})
    assert shown["load_ms"] > 0
    assert shown["error"] is None
    told = run_millrace("models", "--url", changing.url).stdout
    assert told.startswith("x@1: 1 ready, loads in ")
