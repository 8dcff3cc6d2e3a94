"""More calls than one worker can answer in time: who is let in, and what becomes of the others."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count, cycle
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
import redis

from jobs.calls.keys import Keys
from ops.supervisor.platform import Platform
from tests.support.clients import chat
from tests.support.models.entries import function, model
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.wait import PATIENCE_S, eventually

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
    + model("talk", "echo_chat", target_ttft_ms=60_000, step_ms=5, context_tokens=8192)
    + model("embed", "minilm", target_ms=60_000, limits={"max_batch": 4}, degrade={"truncate": 8})
)
MOST_QUEUED, MOST_STREAMS = 30, 2
LAUNCH_S = 9.0  # longer than a deadline after which everything stands still for a while
LATE = {"no_worker", "deadline_passed"}
"""Codes of calls whose worker gets no core for seconds: it is away, or they wait too long."""
LONG = "a text of which a good deal more than the beginning is read " * 30


PLATFORM = spec(
    MODELS,
    max_queued_calls=MOST_QUEUED,
    max_streams=MOST_STREAMS,
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
    flood(platform, 1, model=model)
    found = flood(platform, 1, model=model, timeout_ms=40)[0].json()
    return "degraded" in found or found.get("code") == "predicted_wait"


def flood(platform: Platform, many: int, **body: Any) -> list[httpx.Response]:
    with ThreadPoolExecutor(many) as pool, httpx.Client() as http:

        def call(n: int) -> httpx.Response:
            return http.post(f"{platform.url}/infer", json={"input": f"t{n}"} | body)

        return list(pool.map(call, range(many)))


def codes(answers: list[httpx.Response]) -> dict[str, int]:
    return Counter("ok" if a.is_success else a.json()["code"] for a in answers)


def refused(platform: Platform, many: int, code: str, most_ms: int, **body: Any) -> set[int]:
    """Statuses of refusals beside answers, in a flood in which some are told, in no constant, to
    come again in no longer than the queue is; starved callers and workers may need several."""

    def attempt() -> set[int] | None:
        answers = flood(platform, many, **body)
        found = codes(answers)
        assert found.keys() <= {"ok", code} | LATE
        told = [answer for answer in answers if not answer.is_success]
        soon_ms = [int(answer.headers.get("retry-after-ms", 0)) for answer in told]
        in_time = found["ok"] >= 2 and all(20 <= soon <= most_ms for soon in soon_ms)
        if not in_time or len(set(soon_ms)) < 2 or found.keys() != {"ok", code}:
            return None
        for answer, soon in zip(told, soon_ms, strict=True):
            assert int(answer.headers["retry-after"]) == -(-soon // 1000)
        if code == "overloaded":
            assert MOST_QUEUED <= found["ok"] < many
        return {answer.status_code for answer in told}

    return eventually(attempt) or set()


def test_calls_that_cant_be_in_time_are_refused_at_once(platform: Platform) -> None:
    assert refused(platform, 30, "predicted_wait", most_ms=1000, model="tight@1") == {429}
    eventually(lambda: flood(platform, 1, model="tight@1")[0].is_success)


def test_calls_beyond_a_full_queue_are_refused(platform: Platform) -> None:
    many = 2 * MOST_QUEUED
    assert refused(platform, many, "overloaded", most_ms=20_000, model="patient") == {503}


def test_a_call_gets_no_answer_after_its_deadline_started_or_not(
    platform: Platform, tmp_path: Path
) -> None:
    files = (tmp_path / f"begun-{n}" for n in count())

    def call(**body: Any) -> tuple[int, str, float]:
        since_s = monotonic()
        with httpx.Client() as http:
            answer = http.post(f"{platform.url}/infer", json={"model": "slow"} | body)
        return answer.status_code, answer.json().get("code"), monotonic() - since_s

    def attempt() -> bool:
        """False where the first call had no time left when a worker took it."""
        begun = next(files)
        with ThreadPoolExecutor(2) as pool:
            started = pool.submit(call, input=f"long {begun} {LAUNCH_S:g}", timeout_ms=2500)
            eventually(lambda: begun.exists() or started.done())
            waiting = pool.submit(call, input="x", timeout_ms=2000)
            assert started.result()[:2] == (504, "deadline_passed")
            assert 2.5 <= started.result()[2] < LAUNCH_S
        if not begun.exists():
            return False
        assert waiting.result()[:2] == (504, "deadline_passed")
        assert 2.0 <= waiting.result()[2] < LAUNCH_S
        return True

    eventually(attempt)
    eventually(lambda: call(input="x")[0] == 200)  # the launch has ended


def _count(platform: Platform, model: str) -> int:
    """Calls that Redis has."""
    with redis.Redis.from_url(platform.settings.redis_url) as connection:
        found: Any = connection.hlen(Keys(model)("calls"))
        return int(found)


def test_a_call_that_would_be_late_is_answered_by_the_fallback(platform: Platform) -> None:
    both = {("tight", "2", "None"), ("shout", "1", "{'fallback_from': 'tight@2'}")}

    def attempt() -> bool:
        answers = flood(platform, 30, model="tight@2")
        assert codes(answers).keys() <= {"ok"} | LATE
        found = [(n, answer.json()) for n, answer in enumerate(answers) if answer.is_success]
        assert [one["output"] for _, one in found] == [f"T{n}" for n, _ in found]
        named = {(one["model"], one["version"], str(one.get("degraded"))) for _, one in found}
        assert named <= both
        return named == both and len(found) == 30

    eventually(attempt)


def test_a_tenant_has_a_bounded_number_of_open_streams_and_others_end(platform: Platform) -> None:
    url = f"{platform.url}/v1/chat/completions"
    endless = {"model": "talk", "stream": True, **chat("go on", min_tokens=8000, max_tokens=8000)}
    with httpx.Client(timeout=PATIENCE_S) as http, ExitStack() as stack:
        for _ in range(MOST_STREAMS):
            opened = stack.enter_context(http.stream("POST", url, json=endless))
            assert opened.status_code == 200
        refused = http.post(url, json=endless)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (429, "rate_limit_exceeded")
        assert "2 streams open" in error["message"]
        assert refused.headers["RateLimit"] == '"streams";r=0'
        assert 1 <= int(refused.headers["Retry-After"]) <= 3
        whole = http.post(url, json={"model": "talk", **chat("a b")})
        assert whole.status_code == 200
    short = {"model": "talk", "stream": True, **chat("a b")}
    eventually(lambda: httpx.post(url, json=short, timeout=PATIENCE_S).status_code == 200)


def test_lower_classes_are_shed_before_interactive_calls(platform: Platform) -> None:
    """4 calls a second are answered: 13 are too much for a bulk call, which may wait for 2.1 s."""

    def attempt() -> bool:
        with ThreadPoolExecutor(1) as pool:
            before = pool.submit(flood, platform, 13, model="classes")
            eventually(lambda: before.done() or _count(platform, "classes@1") >= 12)
            bulk = flood(platform, 1, model="classes", **{"class": "bulk"})
            interactive = flood(platform, 1, model="classes")
        found = [codes(answers) for answers in (bulk, interactive, before.result())]
        return found == [{"predicted_wait": 1}, {"ok": 1}, {"ok": 13}]

    eventually(attempt)
    eventually(lambda: flood(platform, 1, model="classes", **{"class": "bulk"})[0].is_success)


def test_a_text_is_cut_short_before_its_call_is_refused(platform: Platform) -> None:
    timeouts_ms = cycle((100, 200, 500, 1000, 2500))  # one suits this machine

    def attempt() -> list[dict[str, Any]]:
        timeout_ms = next(timeouts_ms)
        answers = flood(platform, 60, model="embed", input=LONG, timeout_ms=timeout_ms)
        assert codes(answers).keys() <= {"ok", "predicted_wait", "overloaded"} | LATE
        found = [answer.json() for answer in answers if answer.is_success]
        return [body for body in found if "degraded" in body]

    cut = eventually(attempt)
    asked = {"model": "embed", "input": LONG, "params": {"truncate": 8}}
    url = f"{platform.url}/infer"
    short = eventually(lambda: (a := httpx.post(url, json=asked)).is_success and a.json())
    for body in cut:
        assert body["degraded"] == {"truncated_to": 8}
        assert body["usage"] == short["usage"]
        assert body["usage"]["tokens"] == 8 < body["usage"]["truncated"]
        assert body["output"] == pytest.approx(short["output"], abs=1e-5)
