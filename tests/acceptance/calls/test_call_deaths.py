"""Workers die with calls in hand; the calls are answered. Two real workers, killed for real."""

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
import redis

from jobs.calls.redis import RedisLanes
from ops.supervisor.platform import Platform
from tests.support.children import stopped, until
from tests.support.clients import request_bytes, send
from tests.support.models.deadly import LAUNCHES, RELEASED
from tests.support.models.entries import function
from tests.support.pace import lease_s
from tests.support.platforms import spec
from tests.support.wait import eventually, gone, slowdown

# target_ms: no call is refused for its time
ANY: Any = {"target_ms": 60_000, "limits": {"max_batch": 64}}
MODELS = function("deadly:deadly", **ANY) + function("deadly:deadly", "fresh", **ANY)
LEASE_S = lease_s(2.0)
LONG_S = 120
PLATFORM = spec(MODELS, workers=2, lease_s=LEASE_S)


class Stage:
    """Two workers that serve `deadly`, what they launched, and calls on their way."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.redis = redis.Redis.from_url(platform.settings.redis_url)
        self.lanes = RedisLanes(self.redis, "deadly@1")
        self._callers = ThreadPoolExecutor(16)

    def set_up(self) -> None:
        """Both workers ready, and nothing launched: what the test before released has ended."""
        self.until(lambda: self.lanes.look("a test").replicas == 2)
        self.until(self._launches_have_ended)
        self._path(LAUNCHES).write_text("")
        self._path(RELEASED).unlink(missing_ok=True)

    def _launches_have_ended(self) -> bool:
        with self._path(LAUNCHES).open("a") as log, suppress(BlockingIOError):
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def until(self, fn: Callable[[], object]) -> None:
        until(self.platform, fn)

    def call(
        self, text: str, timeout_ms: int = 1000 * LONG_S, model: str = "deadly"
    ) -> "Future[httpx.Response]":
        body = {"model": model, "input": text, "timeout_ms": timeout_ms}
        url = f"{self.platform.url}/infer"
        return self._callers.submit(httpx.post, url, json=body, timeout=2 * LONG_S)

    def held(self, text: str = "hold", **bounds: Any) -> "tuple[Future[httpx.Response], int]":
        """A call in the hands of a worker, and that worker's pid."""
        answer = self.call(text, **bounds)
        self.until(lambda: self.launches(text))
        return answer, self.launches(text)[0][0]

    def launches(self, text: str) -> list[tuple[int, list[str]]]:
        """(pid, texts) of each launch that this text was in."""
        lines = self._path(LAUNCHES).read_text().splitlines()
        found = [(int(pid), texts) for pid, *texts in (line.split("\t") for line in lines)]
        return [(pid, texts) for pid, texts in found if text in texts]

    def release(self) -> None:
        self._path(RELEASED).touch()

    def answer(self, call: "Future[httpx.Response]") -> tuple[int, str]:
        """(200, output) or (status, code)."""
        self.until(call.done)
        answer = call.result()
        return answer.status_code, answer.json()["output" if answer.is_success else "code"]

    def _path(self, name: str) -> Path:
        return self.platform.settings.home / name


@pytest.fixture
def stage(platform: Platform) -> Iterator[Stage]:
    stage = Stage(platform)
    stage.set_up()
    yield stage
    stage.release()
    stage.redis.close()


def test_a_deadline_that_ends_before_the_death_is_noticed_is_kept(stage: Stage) -> None:
    """Launches of the other model may be predicted to take longer than that."""
    deadline_s = 0.75 * LEASE_S

    def launched() -> Any:
        """None where the call's time was over before."""
        since_s = monotonic()
        call = stage.call("hold", timeout_ms=round(1000 * deadline_s), model="fresh")
        stage.until(lambda: call.done() or stage.launches("hold"))
        return (call, since_s) if stage.launches("hold") else None

    call, since_s = eventually(launched)
    with stopped(stage.launches("hold")[0][0]):  # nobody sees it end: its time has to run out
        assert stage.answer(call) == (504, "deadline_passed")
        assert deadline_s <= monotonic() - since_s < deadline_s + 2 * LEASE_S * slowdown()
        keys = RedisLanes(stage.redis, "fresh@1").keys
        stage.until(lambda: not stage.redis.exists(*map(keys, ("calls", "taken"))))
        assert len(stage.launches("hold")) == 1


def test_a_call_in_the_hands_of_a_killed_worker_is_answered_by_another(stage: Stage) -> None:
    call, killed = stage.held()
    os.kill(killed, signal.SIGKILL)
    stage.until(lambda: len(stage.launches("hold")) == 2)
    stage.release()
    assert stage.answer(call) == (200, "HOLD")
    assert [pid == killed for pid, _ in stage.launches("hold")] == [True, False]


def test_a_call_that_kills_is_delivered_twice_and_its_mates_are_answered(stage: Stage) -> None:
    holding = [stage.held(text)[0] for text in ("hold 1", "hold 2")]  # both workers are busy
    texts = ["die", "a", "b", "c"]
    calls = [stage.call(text) for text in texts]
    stage.until(lambda: sum(lane.rows for lane in stage.lanes.look("a test").lanes) == len(texts))
    stage.release()
    assert [stage.answer(call) for call in holding] == [(200, "HOLD 1"), (200, "HOLD 2")]
    assert [stage.answer(call) for call in calls] == [
        (503, "worker_lost"), (200, "A"), (200, "B"), (200, "C"),
    ]  # fmt: skip
    assert calls[0].result().json()["retryable"] is True
    [(_, first), (_, second)] = stage.launches("die")
    assert (sorted(first), second) == (sorted(texts), ["die"])
    for text in ("a", "b", "c"):
        assert [launched for _, launched in stage.launches(text)[1:]] == [[text]]


def test_a_call_whose_client_left_is_not_run_again(stage: Stage) -> None:
    body, kind = b'{"model": "deadly", "input": "hold"}', {"Content-Type": "application/json"}
    with send(stage.platform, request_bytes("/infer", kind, body)):
        stage.until(lambda: stage.launches("hold"))
    stage.until(lambda: not stage.redis.exists(*map(stage.lanes.keys, ("calls", "taken"))))
    [(holder, _)] = stage.launches("hold")
    os.kill(holder, signal.SIGKILL)
    eventually(lambda: stage.lanes.look("a test").replicas == 1)  # nobody takes its place yet
    assert stage.answer(stage.call("next")) == (200, "NEXT")
    assert len(stage.launches("hold")) == 1


def test_the_late_reply_of_a_worker_that_stood_still_is_ignored(stage: Stage) -> None:
    call, zombie = stage.held()
    with stopped(zombie):
        stage.until(lambda: len(stage.launches("hold")) == 2)
        stage.release()
        assert stage.answer(call) == (200, "HOLD")
    stage.until(lambda: stage.lanes.look("a test").replicas == 2)
    calls = {f"text {n}": stage.call(f"text {n}") for n in range(16)}
    assert {text: stage.answer(call) for text, call in calls.items()} == {
        text: (200, text.upper()) for text in calls
    }
    assert not gone(zombie)


def test_a_worker_that_drains_keeps_its_call_for_longer_than_a_lease(stage: Stage) -> None:
    call, draining = stage.held()
    os.kill(draining, signal.SIGTERM)
    eventually(lambda: stage.lanes.look("a test").replicas == 1)
    since_ms = stage.lanes.look("a test").now_ms
    eventually(lambda: stage.lanes.look("a test").now_ms > since_ms + 1000 * (LEASE_S + 1.5))
    stage.release()
    assert stage.answer(call) == (200, "HOLD")
    assert [pid for pid, _ in stage.launches("hold")] == [draining]


def test_calls_that_redis_lost_are_refused_long_before_their_deadline(stage: Stage) -> None:
    call, _ = stage.held()
    stage.redis.flushall()
    assert stage.answer(call) == (503, "unavailable")
    stage.release()
    stage.until(lambda: stage.answer(stage.call("next")) == (200, "NEXT"))
