"""Items that take their worker with them, or fail for a while: only the guilty pay."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from jobs import ids
from millrace import Client
from ops.supervisor.platform import Platform
from ops.supervisor.worker import WatchedWorker
from tests.support.platforms import spec, transaction
from tests.support.processes import spawned
from tests.support.wait import eventually, gone

MODEL = """
[[model]]
name = "{name}"
version = "1"
engine = "function"
options = {{ function = "tests.support.models.broken:{name}" }}
limits.max_batch = 32
limits.slice_items = 4
limits.max_launch_s = {hangs_s}
limits.backoff_ms = 20
limits.max_attempts = 3
"""
HANGS_AFTER_S = {"deadly": 1, "flaky": 30, "slow": 30, "greedy": 30}
PLATFORM = spec(
    "".join(MODEL.format(name=name, hangs_s=s) for name, s in HANGS_AFTER_S.items()),
    workers=2,
    lease_s=2.0,
    worker_max_mb=500,
)


@pytest.fixture
def client(platform: Platform) -> Iterator[Client]:
    made = Client(platform.url)
    yield made
    made.close()


def run(platform: Platform, client: Client, model: str, texts: Sequence[str]) -> list[Any]:
    """The results of a job, while `millrace up` does its part."""
    job = client.jobs.submit(model, (json.dumps(t).encode() + b"\n" for t in texts))["id"]

    def ended() -> bool:
        platform.poll()
        return client.jobs.get(job)["state"] == "completed"

    eventually(ended)
    return list(client.jobs.results(job, wait=False))


@pytest.mark.parametrize("deed", ["segv", "exit", "leave", "hang"])
def test_an_item_that_kills_its_worker_is_found_and_all_others_succeed(
    platform: Platform, client: Client, deed: str
) -> None:
    texts = [f"t{n}" for n in range(40)]
    texts[17] = deed
    found = run(platform, client, "deadly", texts)
    assert [line["seq"] for line in found] == list(range(40))
    failed = {line["seq"]: line["error"]["code"] for line in found if line["error"]}
    assert failed == {17: "worker_lost"}
    assert all(line["output"] == texts[line["seq"]].upper() for line in found if not line["error"])


def test_transient_failures_are_tried_again_and_permanent_ones_are_not(
    platform: Platform, client: Client, tmp_path: Path
) -> None:
    texts = [
        "a",
        f"fails 1 {tmp_path}/once",
        f"fails 2 {tmp_path}/twice",
        "never",
        "refused",
        "memory",
        "b",
    ]
    found = run(platform, client, "flaky", texts)
    ends = [(line["outcome"], line["attempts"]) for line in found]
    assert ends == [
        ("succeeded", 1),
        ("succeeded", 2),
        ("succeeded", 3),
        ("failed", 3),
        ("failed", 1),
        ("failed", 1),
        ("succeeded", 1),
    ]
    never = found[3]["error"]
    assert never["code"] == "transient"
    assert [error["code"] for error in never["attempts"]] == ["transient"] * 3


def test_items_of_a_launch_that_was_rate_limited_are_tried_again(
    platform: Platform, client: Client, tmp_path: Path
) -> None:
    found = run(platform, client, "flaky", [f"limit {tmp_path}/limit", "x"])
    assert [line["outcome"] for line in found] == ["succeeded"] * 2
    limited, beside = (line["attempts"] for line in found)
    assert limited == 2
    assert beside in (1, 2)  # 1: on a busy machine its slice is another one, with its own launch


def test_out_of_memory_halves_the_launch_and_costs_no_attempt(
    platform: Platform, client: Client
) -> None:
    found = run(platform, client, "flaky", [f"m{n}" for n in range(64)])
    assert {(line["outcome"], line["attempts"]) for line in found} == {("succeeded", 1)}


def test_an_innocent_item_is_never_quarantined_however_often_workers_are_killed(
    platform: Platform, client: Client
) -> None:
    job = client.jobs.submit("slow", (b'"s%d"\n' % n for n in range(8)))["id"]
    kills = 0

    def ended() -> bool:
        nonlocal kills
        platform.poll()
        if kills < 12:
            for child in platform.supervisor.children:
                if isinstance(child, WatchedWorker) and child.alive() and child.ready():
                    assert child.pid
                    with suppress(ProcessLookupError):  # it has just ended by itself
                        os.kill(child.pid, signal.SIGKILL)
                        kills += 1
        return client.jobs.get(job)["state"] == "completed"

    eventually(ended)
    assert client.jobs.get(job)["counts"]["succeeded"] == 8
    suspects = text("SELECT count(*) FROM slices WHERE suspect AND job_id = :job")
    with transaction(platform) as tx:
        assert tx.scalar(suspects, {"job": ids.parse("job", job)}) == 0


def test_a_worker_that_grew_too_large_is_replaced_and_nothing_is_lost(
    platform: Platform, client: Client
) -> None:
    [grown] = run(platform, client, "greedy", ["grow"])
    pid = int(grown["output"])

    def replaced() -> bool:
        platform.poll()
        return gone(pid)

    eventually(replaced)
    found = run(platform, client, "greedy", ["x"] * 8)
    assert {line["outcome"] for line in found} == {"succeeded"}
    assert str(pid) not in {line["output"] for line in found}


def test_millrace_worker_ends_a_launch_that_hangs(platform: Platform, client: Client) -> None:
    """Plain `millrace worker`, alone: nobody else is there to notice."""
    workers = [c for c in platform.supervisor.children if isinstance(c, WatchedWorker)]
    for child in workers:
        child.terminate()
    for child in workers:
        eventually(lambda child=child: not child.alive())  # type: ignore[misc]
    environ = os.environ | platform.settings.environment()
    command = [sys.executable, "-m", "ops", "worker"]
    with spawned(command, env=environ, start_new_session=True) as alone:
        job = client.jobs.submit("deadly", [b'"hang"\n', b'"b"\n'])["id"]
        eventually(lambda: client.jobs.get(job)["state"] == "completed")
        codes = [result["error"] for result in client.jobs.results(job, wait=False)]
        assert [code and code["code"] for code in codes] == ["worker_lost", None]
        alone.terminate()
        assert alone.wait() == 0
    assert gone(alone.pid)
