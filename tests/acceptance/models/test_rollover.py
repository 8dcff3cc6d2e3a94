"""One version follows another while calls and a job run: nothing is lost."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.command_line import run_millrace
from tests.support.jobs import completed
from tests.support.models.entries import function
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

LIMITS = {"max_batch": 10, "slice_items": 50}


def entry(version: str) -> str:
    return function("paced:steady", "x", version=version, target_ms=5000, limits=LIMITS)


ITEMS = 800  # eight seconds alone
EVERY_S = 0.05
ANSWERED_IN_MS = 20_000
_AT_ONCE = 32


class Callers:
    """Calls of "x" at a steady rate, from `with` to its end; then all of them have ended."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._call)
        self._sent: list[Future[tuple[int, str]]] = []

    def answers(self) -> list[tuple[int, str]]:
        """Status, and the version that answered or what was wrong, of each."""
        return [call.result() for call in self._sent]

    def is_answered(self) -> bool:
        """Returns True once a call has an answer."""
        return any(call.done() for call in self._sent)

    def __enter__(self) -> "Callers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _call(self) -> None:
        limits = httpx.Limits(max_connections=_AT_ONCE)
        with (
            httpx.Client(base_url=self._url, limits=limits) as http,
            ThreadPoolExecutor(_AT_ONCE) as callers,
        ):
            while not self._ended.wait(EVERY_S):
                self._sent.append(callers.submit(self._infer, http, f"call {len(self._sent)}"))

    @staticmethod
    def _infer(http: httpx.Client, text: str) -> tuple[int, str]:
        body = {"model": "x", "input": text, "timeout_ms": ANSWERED_IN_MS}
        answer = http.post("/infer", json=body)
        found = answer.json()
        if not answer.is_success:
            return answer.status_code, answer.text
        assert found["output"] == text
        return answer.status_code, found["version"]


@pytest.fixture
def platform(platforms: Platforms) -> Iterator[Platform]:
    with platforms.running(spec(entry("1"), lease_s=3.0 * pace())) as started:
        yield started


def declare(path: Path, *versions: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(map(entry, versions)))
    os.replace(fresh, path)


def ready_versions(client: Client) -> set[str]:
    shown = client.request("GET", "/models")["data"]
    return {model["version"] for model in shown if model["ready"]}


def test_a_version_follows_another_while_calls_and_a_job_run_and_none_is_lost(
    platform: Platform,
) -> None:
    models = platform.settings.models
    assert models
    with closing(Client(platform.url)) as client:
        job = client.jobs.submit("x@1", [f"item {n}" for n in range(ITEMS)]).id
        with Callers(platform.url) as callers:
            eventually(callers.is_answered)
            declare(models, "1", "2")
            eventually(lambda: ready_versions(client) == {"1", "2"})
            declare(models, "2")
            eventually(lambda: ready_versions(client) == {"2"})
            assert completed(client, job)
        assert set(callers.answers()) == {(200, "1"), (200, "2")}
        found = list(client.jobs.results(job, wait=False))
        assert [line["output"] for line in found] == [f"item {n}" for n in range(ITEMS)]


def test_models_shows_how_each_version_stands(platform: Platform) -> None:
    [shown] = httpx.get(f"{platform.url}/models").json()["data"]
    assert (shown["ready"], shown["workers"], shown["states"]) == (True, 1, {"ready": 1})
    assert shown["load_ms"] > 0
    assert shown["error"] is None
    told = run_millrace("models", "--url", platform.url).stdout
    assert told.startswith("x@1: 1 ready, loads in ")
