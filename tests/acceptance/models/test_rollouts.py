"""Rollouts on a whole platform: workers record launches, and the keeper judges by them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.support import children
from tests.support.models.entries import function, model
from tests.support.platforms import spec
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

MODELS = (
    model("breaks", "echo")
    + model("breaks", "echo", version="2")
    + function("broken:moody", "breaks", version="3", samples=["warm"])
    + model("liked", "echo")
    + model("liked", "echo", version="2")
    + model("kills", "echo")
    + function("broken:deadly", "kills", version="4", samples=["warm"])
    + model("chat", "echo_chat")
    + model("chat", "echo_chat", version="2")
)
BREAKS_THE_THIRD, KILLS_THE_FOURTH = "raise", "segv"
HASTY = {"steps": [50, 100], "min_launches": 10, "min_stay_s": 0, "cost_hold": 0.5}


PLATFORM = spec(MODELS)


@pytest.fixture(scope="module", autouse=True)
def _all_are_ready(http: httpx.Client) -> None:
    models = ["breaks@3", "liked@1", "liked@2", "kills@1", "kills@4", "chat@1", "chat@2"]
    paths = [f"/models/{model}/ready" for model in models]
    eventually(lambda: all(http.get(path).status_code == 200 for path in paths))


def start(http: httpx.Client, canary: str, model: str, **more: Any) -> str:
    body = {"model": model, "canary": canary, "policy": HASTY, **more}
    answer = http.post("/rollouts", json=body)
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["id"]
    return id


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
    body = {"model": "chat", "messages": [{"role": "user", "content": "one two three"}]}

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

    def infer(value: str) -> int:
        body = {"model": "kills", "input": value, "timeout_ms": 5000}
        return http.post("/infer", json=body).status_code

    def make_calls() -> None:
        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(infer, value) for value in ["a"] * 80 + [KILLS_THE_FOURTH] * 20]
            # As `millrace up` does: a worker that died is started again.
            children.until(platform, lambda: all(one.done() for one in calls))

    rollout = until(http, id, has_ended, make_calls)
    assert rollout["state"] == "rolled_back", rollout
    assert rollout["reason"].startswith("launches with a failed call: failed "), rollout
    children.until(platform, lambda: infer("a") == 200)
    assert call(http, "kills", KILLS_THE_FOURTH) == rollout["stable"]
