"""One version follows another while calls and a job run: nothing is lost.

The calls here go to the lanes as an api process puts them there: to the newest version that a
worker is ready for.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from jobs import ids
from jobs.calls.lanes import Refused, Terms, lane_name
from jobs.calls.messages import Call, unpack_replies
from jobs.calls.redis import RedisLanes, reply_key
from ops.client import Client
from ops.up import Platform, running
from tests.wait import eventually

ENTRY = """
[[model]]
name = "x"
version = "{}"
engine = "function"
options = {{ function = "tests.acceptance.paced_samples:steady" }}
limits = {{ max_batch = 10, slice_items = 50 }}
"""
ITEMS = 800  # eight seconds alone
EVERY_S = 0.05
ANSWERED_IN_MS = 20_000
VERSIONS = ("x@2", "x@1")


class Callers:
    """Calls at a steady rate, from `with` to its end, when all of them have been answered."""

    def __init__(self, client: "redis.Redis") -> None:
        self._redis = client
        self._lanes = {key: RedisLanes(self._redis, key) for key in VERSIONS}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._call)
        self.sent: dict[str, str] = {}
        self.refused: list[Refused] = []
        self.errors: list[object] = []
        self._waiting: dict[str, str] = {}

    def ready(self, version: str) -> bool:
        return self._lanes[version].look("nobody/0").replicas > 0

    def answered(self) -> bool:
        """Whether all that was sent has been."""
        while found := self._redis.lpop(reply_key("test")):
            for id, output, error, *_ in unpack_replies(found):
                assert output == id
                self.errors += [error] if error else []
                del self._waiting[id]
        return not self._waiting

    def __enter__(self) -> "Callers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _call(self) -> None:
        while not self._ended.wait(EVERY_S):
            version = next((key for key in VERSIONS if self.ready(key)), VERSIONS[0])
            id = ids.show("call", ids.new())
            call = Call(id, lane_name({}, 0), "default", id, len(id), "test")
            self._waiting[id] = self.sent[id] = version
            refused = self._lanes[version].put(
                call, target_ms=250, timeout_ms=ANSWERED_IN_MS, most=1000, terms=Terms()
            )
            if refused:
                self.refused.append(refused)
                del self._waiting[id]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models.toml"
    declare(path, "1")
    return path


@pytest.fixture
def platform(models: Path, tmp_path: Path) -> Iterator[Platform]:
    with running(tmp_path / "home", models=models, lease_s=3.0) as started:
        yield started


@pytest.fixture
def callers_redis(platform: Platform) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(platform.settings.redis_url) as client:
        yield client


def declare(path: Path, *versions: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(ENTRY.format(version) for version in versions))
    os.replace(fresh, path)


def ready_versions(client: Client) -> set[str]:
    shown = client.request("GET", "/models")["data"]
    return {model["version"] for model in shown if model["ready"]}


def test_a_version_follows_another_while_calls_and_a_job_run_and_none_is_lost(
    platform: Platform, models: Path, callers_redis: "redis.Redis"
) -> None:
    client = Client(platform.url)
    job = client.submit((b'"item %d"\n' % n for n in range(ITEMS)), model="x@1")["id"]
    with Callers(callers_redis) as callers:
        declare(models, "1", "2")
        eventually(lambda: ready_versions(client) == {"1", "2"})
        declare(models, "2")
        eventually(lambda: ready_versions(client) == {"2"}, timeout_s=60)
        assert client.job(job)["state"] == "completed"
    eventually(callers.answered)
    assert (callers.refused, callers.errors) == ([], [])
    assert set(callers.sent.values()) == set(VERSIONS)
    found = [json.loads(line) for line in client.results(job)]
    assert [line["output"] for line in found] == [f"item {n}" for n in range(ITEMS)]
    client.close()


def test_models_shows_how_each_version_stands(platform: Platform) -> None:
    [shown] = httpx.get(f"{platform.url}/models").json()["data"]
    assert (shown["ready"], shown["workers"], shown["states"]) == (True, 1, {"ready": 1})
    assert shown["load_ms"] > 0
    assert shown["error"] is None
    command = [sys.executable, "-m", "ops", "models", "--url", platform.url]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    assert told.startswith("x@1: 1 ready, loads in ")
