"""More calls than one worker can answer in time: who is let in, and what becomes of the others."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from time import monotonic
from typing import Any

import httpx
import pytest
import redis

from jobs.calls.keys import Keys
from ops.supervisor.platform import Platform
from tests.support.models.entries import function, model
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.wait import eventually, slowdown

SHOUT = "workers.engines.samples:batchstring"
TWO = {"max_batch": 2}
MODELS = (
    function(SHOUT, "tight", target_ms=300, limits=TWO)  # 20 calls a second
    + function(
        SHOUT, "tight", version="2", target_ms=300, limits=TWO, degrade={"fallback": "shout@1"}
    )
    + function("broken:moody", "shout", target_ms=60_000)
    + function("broken:slow", "classes", target_ms=5000, limits=TWO, degrade={"shed": True})
    + function(SHOUT, "patient", target_ms=60_000, limits={"max_batch": 1})
    + function("broken:slow", target_ms=60_000)
    + model("embed", "minilm", target_ms=60_000, limits={"max_batch": 4}, degrade={"truncate": 8})
)
MOST_QUEUED = 30
LONG = "a text of which a good deal more than the beginning is read " * 30


PLATFORM = spec(
    MODELS,
    max_queued_calls=MOST_QUEUED,
    lease_s=1.5 * pace(),  # workers report their launch times every half second
)


@pytest.fixture(scope="module")
def platform(platforms: Platforms) -> Iterator[Platform]:
    with platforms.running(PLATFORM) as started:
        for model in ("tight@1", "tight@2", "classes@1"):
            eventually(lambda model=model: _is_known(started, model))
        yield started


def _is_known(platform: Platform, model: str) -> bool:
    """Returns True if the api knows how long the model's launches take: a call with too short a
    timeout is then refused, or degraded."""
    assert flood(platform, 1, model=model)[0].is_success
    found = flood(platform, 1, model=model, timeout_ms=40)[0].json()
    return "degraded" in found or found["code"] == "predicted_wait"


def flood(platform: Platform, many: int, **body: Any) -> list[httpx.Response]:
    with ThreadPoolExecutor(many) as pool, httpx.Client() as http:

        def call(n: int) -> httpx.Response:
            return http.post(f"{platform.url}/infer", json={"input": f"t{n}"} | body)

        return list(pool.map(call, range(many)))


def codes(answers: list[httpx.Response]) -> dict[str, int]:
    return Counter("ok" if a.is_success else a.json()["code"] for a in answers)


def check_retry_after(refused: list[httpx.Response], most_ms: int) -> None:
    """Checks that it is no constant, and no longer than the queue is."""
    found = [int(answer.headers["retry-after-ms"]) for answer in refused]
    assert all(20 <= soon_ms <= most_ms for soon_ms in found), found
    assert len(set(found)) > 1
    for answer, soon_ms in zip(refused, found, strict=True):
        assert int(answer.headers["retry-after"]) == -(-soon_ms // 1000)


def test_calls_that_cant_be_in_time_are_refused_at_once(platform: Platform) -> None:
    answers = flood(platform, 30, model="tight@1")
    found = codes(answers)
    assert found.keys() == {"ok", "predicted_wait"}
    assert found["ok"] >= 2
    refused = [answer for answer in answers if not answer.is_success]
    assert {answer.status_code for answer in refused} == {429}
    check_retry_after(refused, most_ms=1000)
    again = flood(platform, 1, model="tight@1")
    assert codes(again) == {"ok": 1}


def test_calls_beyond_a_full_queue_are_refused(platform: Platform) -> None:
    answers = flood(platform, 2 * MOST_QUEUED, model="patient")
    found = codes(answers)
    assert found.keys() == {"ok", "overloaded"}
    assert MOST_QUEUED <= found["ok"] < 2 * MOST_QUEUED
    refused = [answer for answer in answers if not answer.is_success]
    assert {answer.status_code for answer in refused} == {503}
    check_retry_after(refused, most_ms=20_000)


def test_a_call_gets_no_answer_after_its_deadline_started_or_not(platform: Platform) -> None:
    def call(**body: Any) -> tuple[int, str, float]:
        since_s = monotonic()
        with httpx.Client() as http:
            answer = http.post(f"{platform.url}/infer", json={"model": "slow"} | body)
        return answer.status_code, answer.json().get("code"), monotonic() - since_s

    with ThreadPoolExecutor(2) as pool:
        started = pool.submit(call, input="long", timeout_ms=2500)  # takes 5 s, not 0.5
        eventually(lambda: _count(platform, "slow@1", "taken"))
        waiting = pool.submit(call, input="x", timeout_ms=2000)
        assert started.result()[:2] == waiting.result()[:2] == (504, "deadline_passed")
        late_s = slowdown()
        assert 2.5 <= started.result()[2] < 2.5 + late_s
        assert 2.0 <= waiting.result()[2] < 2.0 + late_s


def _count(platform: Platform, model: str, what: str = "calls") -> int:
    """Calls that Redis has, or that a worker has in hand."""
    with redis.Redis.from_url(platform.settings.redis_url) as connection:
        found: Any = connection.hlen(Keys(model)(what))
        return int(found)


def test_a_call_that_would_be_late_is_answered_by_the_fallback(platform: Platform) -> None:
    answers = flood(platform, 30, model="tight@2")
    assert codes(answers) == {"ok": 30}
    assert [answer.json()["output"] for answer in answers] == [f"T{n}" for n in range(30)]
    named = Counter(
        (found["model"], found["version"], str(found.get("degraded")))
        for found in (answer.json() for answer in answers)
    )
    assert named.keys() == {("tight", "2", "None"), ("shout", "1", "{'fallback_from': 'tight@2'}")}


def test_lower_classes_are_shed_before_interactive_calls(platform: Platform) -> None:
    """4 calls a second are answered: 13 are too much for a bulk call, which may wait for 2.1 s."""
    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(flood, platform, 13, model="classes")
        eventually(lambda: _count(platform, "classes@1") >= 12)
        bulk = flood(platform, 1, model="classes", **{"class": "bulk"})
        interactive = flood(platform, 1, model="classes")
        assert codes(bulk) == {"predicted_wait": 1}
        assert codes(interactive) == {"ok": 1}
        assert codes(before.result()) == {"ok": 13}
    assert codes(flood(platform, 1, model="classes", **{"class": "bulk"})) == {"ok": 1}


def test_a_text_is_cut_short_before_its_call_is_refused(platform: Platform) -> None:
    timeouts_ms = cycle((100, 200, 500, 1000, 2500))  # one suits this machine

    def attempt() -> list[dict[str, Any]]:
        timeout_ms = next(timeouts_ms)
        answers = flood(platform, 60, model="embed", input=LONG, timeout_ms=timeout_ms)
        # A worker that gets no core for seconds counts as away, and calls wait too long for it.
        late = {"no_worker", "deadline_passed"}
        assert codes(answers).keys() <= {"ok", "predicted_wait", "overloaded"} | late
        found = [answer.json() for answer in answers if answer.is_success]
        return [body for body in found if "degraded" in body]

    cut = eventually(attempt)
    asked = {"model": "embed", "input": LONG, "params": {"truncate": 8}}
    short = httpx.post(f"{platform.url}/infer", json=asked).json()
    for body in cut:
        assert body["degraded"] == {"truncated_to": 8}
        assert body["usage"] == {"tokens": 8} == short["usage"]
        assert body["output"] == pytest.approx(short["output"], abs=1e-5)
