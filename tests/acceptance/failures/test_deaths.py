"""Processes die; jobs don't. Everything is started as a user starts it, and killed for real."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from millrace import Client
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support.children import child_of, kill, pid_of, until
from tests.support.jobs import begun, finish, scalar_of
from tests.support.pace import pace
from tests.support.platforms import LIGHT, Platforms, copy_database, spec
from tests.support.wait import eventually, gone

ITEMS = 3000
PLATFORM = spec(lease_s=3.0 * pace())


class Up:
    """`millrace up` as a process of its own."""

    def __init__(self, home: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._environ = {
            **os.environ,
            "MILLRACE_HOME": str(home),
            "MILLRACE_PORT": str(port),
            "MILLRACE_LEASE_S": "3",
            "MILLRACE_MODELS": str(home.with_name("models.toml")),
        }
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "ops", "up"]
        process = subprocess.Popen(
            command, env=self._environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: ")
        return process

    def cli(self, *arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "ops", *arguments, "--json"],
            env=self._environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    def kill_everything_at_once(self) -> None:
        self.process.kill()
        self.process.communicate()

    def start_again(self) -> None:
        self.process = self._start()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()
        return self.process.returncode


@pytest.fixture
def up(tmp_path: Path, database_folder: Path) -> Iterator[Up]:
    copy_database(database_folder, tmp_path / "home")
    (tmp_path / "models.toml").write_text(LIGHT)
    started = Up(tmp_path / "home", free_port())
    yield started
    if started.process.poll() is None:
        assert started.stop() == 0


def texts(folder: Path) -> str:
    path = folder / "texts.txt"
    path.write_text("".join(f"item {n}\n" for n in range(ITEMS)))
    return str(path)


def submit(client: Client) -> str:
    """A job of three seconds."""
    return client.jobs.submit("batchstring", [f"item {n}" for n in range(ITEMS)]).id


def assert_once_and_in_order(client: Client, job: str) -> None:
    found = list(client.jobs.results(job, wait=False))
    assert [line["seq"] for line in found] == list(range(ITEMS))
    assert [line["output"] for line in found] == [f"ITEM {n}" for n in range(ITEMS)]


def test_a_worker_killed_in_the_middle_of_a_job_loses_and_doubles_nothing(
    platform: Platform, client: Client
) -> None:
    job = submit(client)
    eventually(lambda: begun(client, job))
    killed = kill(platform)
    assert client.jobs.get(job)["counts"]["succeeded"] < ITEMS

    finish(platform, client, job)
    assert pid_of(platform) != killed
    assert_once_and_in_order(client, job)
    epoch = scalar_of(platform, job, "SELECT max(epoch) FROM slices WHERE job_id = :job")
    assert epoch >= 2


def test_up_killed_with_all_its_children_goes_on_where_it_was(up: Up) -> None:
    with closing(Client(up.url)) as client:
        job = submit(client)
        eventually(lambda: begun(client, job))
        assert client.jobs.get(job)["state"] == "running"
        up.kill_everything_at_once()
        up.start_again()
        assert client.jobs.wait(job)["state"] == "completed"
        assert_once_and_in_order(client, job)


def test_ctrl_c_stops_everything_and_the_next_start_finds_the_jobs(up: Up, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = up.cli("submit", texts(tmp_path), "--model", "echo", "--wait", "-o", str(out))
    assert done["state"] == "completed"
    assert len(out.read_text().splitlines()) == ITEMS
    children = subprocess.run(
        ["pgrep", "-P", str(up.process.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert up.stop() == 0
    assert all(gone(int(pid)) for pid in children)
    up.start_again()
    assert up.cli("jobs")["data"][0]["id"] == done["id"]
    assert up.cli("job", done["id"])["counts"]["succeeded"] == ITEMS


def test_a_stopped_worker_gives_its_slices_back_at_once(platforms: Platforms) -> None:
    with platforms.running(lease_s=60.0) as platform, closing(Client(platform.url)) as client:
        job = submit(client)
        eventually(lambda: client.jobs.get(job)["counts"]["running"])
        os.kill(pid_of(platform), signal.SIGTERM)
        eventually(lambda: client.jobs.get(job)["counts"]["running"] == 0)

        finish(platform, client, job)
        assert_once_and_in_order(client, job)


def test_without_a_worker_a_call_is_refused_at_once_and_a_job_waits(
    platform: Platform, client: Client
) -> None:
    worker = child_of(platform)
    worker.terminate()
    eventually(lambda: not worker.alive())
    body = {"model": "echo", "input": "x"}
    refused = httpx.post(f"{platform.url}/infer", json=body)
    assert (refused.status_code, refused.json()["code"]) == (503, "no_worker")
    assert int(refused.headers["retry-after"]) >= 1
    job = client.jobs.submit("echo", ["x"]).id
    assert client.jobs.get(job)["state"] == "queued"
    worker.start()
    assert client.jobs.wait(job)["state"] == "completed"
    assert client.infer("echo", "x")["output"] == "x"


def test_the_worker_outlives_redis(platform: Platform, client: Client) -> None:
    """celery 5.7.0 ends when Redis dies while a nudge is unacknowledged."""
    job = submit(client)
    eventually(lambda: begun(client, job))
    worker, server = pid_of(platform), platform.servers.redis.process
    assert server is not None
    server.kill()
    server.wait()

    finish(platform, client, job)  # an empty Redis takes its place
    assert_once_and_in_order(client, job)
    eventually(lambda: _infer(platform) == 200)
    assert pid_of(platform) == worker


def test_the_worker_outlives_postgres(platform: Platform, client: Client) -> None:
    job = submit(client)
    eventually(lambda: begun(client, job))
    worker, server = pid_of(platform), platform.servers.postgres.process
    assert server is not None
    server.kill()
    server.wait()
    assert _infer(platform) == 200  # no database on the path of a call

    path = f"{platform.url}/jobs/{job}"
    until(platform, lambda: httpx.get(path).json().get("state") == "completed")
    assert_once_and_in_order(client, job)
    assert pid_of(platform) == worker


def _infer(platform: Platform) -> int:
    body = {"model": "echo", "input": "x"}
    return httpx.post(f"{platform.url}/infer", json=body).status_code


def test_redis_emptied_in_mid_job_delays_it_and_loses_nothing(
    platform: Platform, client: Client, store: "redis.Redis"
) -> None:
    job = submit(client)
    eventually(lambda: begun(client, job))
    store.flushall()
    assert client.jobs.wait(job)["state"] == "completed"
    assert_once_and_in_order(client, job)
    eventually(lambda: _infer(platform) == 200)
