"""Processes die; jobs don't. Everything is started as a user starts it, and killed for real."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from millrace import Client
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support.children import child_of, kill, kill_server, pid_of, until
from tests.support.clients import infer
from tests.support.command_line import run_millrace
from tests.support.jobs import assert_outputs, begun, completed, finish, scalar_of
from tests.support.pace import pace
from tests.support.platforms import LIGHT, Platforms, copy_database, spec
from tests.support.wait import eventually, gone

ITEMS = 3000
PLATFORM = spec(lease_s=3.0 * pace())


class Up:
    """`millrace up` as a process of its own."""

    def __init__(self, home: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._environ = os.environ | {
            "MILLRACE_HOME": str(home),
            "MILLRACE_PORT": str(port),
            "MILLRACE_LEASE_S": "3",
            "MILLRACE_MODELS": str(home.with_name("models.toml")),
        }
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "ops", "up"]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self.process = subprocess.Popen(command, env=self._environ, **pipes)
        assert self.process.stdout
        assert self.process.stdout.readline().startswith("ready: ")

    def cli(self, *arguments: str) -> Any:
        return json.loads(run_millrace(*arguments, "--json", **self._environ).stdout)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate()
        return self.process.returncode


@pytest.fixture
def up(tmp_path: Path, database_folder: Path) -> Iterator[Up]:
    copy_database(database_folder, tmp_path / "home")
    (tmp_path / "models.toml").write_text(LIGHT)
    started = Up(tmp_path / "home", free_port())
    yield started
    if started.process.poll() is None:
        assert started.end(signal.SIGINT) == 0


def submit(client: Client) -> str:
    """A job of three seconds, of which a part has ended."""
    job = client.jobs.submit("batchstring", [f"item {n}" for n in range(ITEMS)]).id
    eventually(lambda: begun(client, job))
    return job


def assert_once_and_in_order(results: Iterable[Any]) -> None:
    assert_outputs(results, [f"ITEM {n}" for n in range(ITEMS)])


def test_a_worker_killed_in_the_middle_of_a_job_loses_and_doubles_nothing(
    platform: Platform, client: Client
) -> None:
    def killed_in_the_middle() -> tuple[str, int] | None:
        """None where the job has ended before the kill."""
        job, killed = submit(client), kill(platform)
        is_cut = client.jobs.get(job)["counts"]["succeeded"] < ITEMS
        return (job, killed) if is_cut else None

    job, killed = until(platform, killed_in_the_middle)  # type: ignore[misc]
    assert_once_and_in_order(finish(platform, client, job))
    assert pid_of(platform) != killed
    epoch = scalar_of(platform, job, "SELECT max(epoch) FROM slices WHERE job_id = :job")
    assert epoch >= 2


def test_up_killed_with_all_its_children_goes_on_where_it_was(up: Up) -> None:
    with closing(Client(up.url)) as client:
        job = eventually(lambda: not completed(client, one := submit(client)) and one)
        up.end(signal.SIGKILL)
        up.start()
        assert client.jobs.wait(job)["state"] == "completed"
        assert_once_and_in_order(client.jobs.results(job, wait=False))


def test_ctrl_c_stops_everything_and_the_next_start_finds_the_jobs(up: Up, tmp_path: Path) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "out.jsonl"
    texts.write_text("".join(f"item {n}\n" for n in range(ITEMS)))
    done = up.cli("submit", str(texts), "--model", "echo", "--wait", "-o", str(out))
    assert done["state"] == "completed"
    assert len(out.read_text().splitlines()) == ITEMS
    pid = up.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert children
    assert up.end(signal.SIGINT) == 0
    assert all(gone(int(pid)) for pid in children)
    up.start()
    assert up.cli("jobs")["data"][0]["id"] == done["id"]
    assert up.cli("job", done["id"])["counts"]["succeeded"] == ITEMS


def test_a_stopped_worker_gives_its_slices_back_at_once(platforms: Platforms) -> None:
    with platforms.running(lease_s=600.0) as platform, closing(Client(platform.url)) as client:
        job = submit(client)
        os.kill(pid_of(platform), signal.SIGTERM)
        eventually(lambda: client.jobs.get(job)["counts"]["running"] == 0)
        assert_once_and_in_order(finish(platform, client, job))


def test_without_a_worker_a_call_is_refused_at_once_and_a_job_waits(
    platform: Platform, client: Client, http: httpx.Client
) -> None:
    worker = child_of(platform)
    worker.terminate()
    eventually(lambda: not worker.alive())
    refused = infer(http, "echo", "x")
    assert (refused.status_code, refused.json()["code"]) == (503, "no_worker")
    assert int(refused.headers["retry-after"]) >= 1
    job = client.jobs.submit("echo", ["x"]).id
    assert client.jobs.get(job)["state"] == "queued"
    worker.start()
    assert client.jobs.wait(job)["state"] == "completed"
    assert client.infer("echo", "x")["output"] == "x"


def test_the_worker_outlives_redis(platform: Platform, client: Client, http: httpx.Client) -> None:
    """celery 5.7.0 ends when Redis dies while a nudge is unacknowledged."""
    job, worker = submit(client), pid_of(platform)
    kill_server(platform.servers.redis)
    # An empty Redis takes its place.
    assert_once_and_in_order(finish(platform, client, job))
    eventually(lambda: infer(http, "echo", "x").is_success)
    assert pid_of(platform) == worker


def test_the_worker_outlives_postgres(
    platform: Platform, client: Client, http: httpx.Client
) -> None:
    job, worker = submit(client), pid_of(platform)
    kill_server(platform.servers.postgres)
    assert infer(http, "echo", "x").is_success  # no database on the path of a call
    until(platform, lambda: http.get(f"/jobs/{job}").json().get("state") == "completed")
    assert_once_and_in_order(client.jobs.results(job, wait=False))
    assert pid_of(platform) == worker
