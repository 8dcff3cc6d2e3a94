"""The command line, and the processes one by one, on services that are configured by URL."""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import redis
from sqlalchemy import text

from jobs.store import db
from ops.embedded.servers import EmbeddedServers
from ops.processes.ports import free_port
from tests.support.platforms import LIGHT
from tests.support.processes import spawned
from tests.support.wait import eventually

COMMAND = [sys.executable, "-m", "ops"]


@pytest.fixture
def environ(
    servers: EmbeddedServers, redis_client: "redis.Redis", tmp_path: Path
) -> dict[str, str]:
    """An empty database and a Redis, by URL."""
    admin = db.connect(servers.postgres.url, pool_size=1)
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("DROP DATABASE IF EXISTS configured WITH (FORCE)"))
        connection.execute(text("CREATE DATABASE configured"))
    admin.dispose()
    url = servers.postgres.url.replace("/millrace?", "/configured?").replace("+psycopg", "")
    return {
        **os.environ,
        "MILLRACE_HOME": str(tmp_path / "never made"),
        "MILLRACE_DATABASE_URL": url,
        "MILLRACE_REDIS_URL": servers.redis.url,
        "MILLRACE_PORT": str(free_port()),
        "MILLRACE_LEASE_S": "3",
    }


def run(environ: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], env=environ, capture_output=True, text=True)


def test_migrate_can_be_repeated_and_run_from_several_processes_at_once(
    environ: dict[str, str],
) -> None:
    with ExitStack() as stack:
        command = [*COMMAND, "migrate"]
        several = [
            stack.enter_context(spawned(command, env=environ, stdout=subprocess.DEVNULL))
            for _ in range(4)
        ]
        assert [process.wait() for process in several] == [0, 0, 0, 0]
    assert run(environ, "migrate").returncode == 0
    assert run(environ, "check").returncode == 0


def test_processes_of_their_own_serve_and_end_on_sigterm(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["MILLRACE_MODELS"] = str(tmp_path / "models.toml")
    (tmp_path / "models.toml").write_text(LIGHT)
    assert run(environ, "migrate").returncode == 0
    url = f"http://127.0.0.1:{environ['MILLRACE_PORT']}"
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(
                spawned([*COMMAND, name], env=environ, stderr=subprocess.DEVNULL)
            )
            for name in ("api", "keeper", "worker")
        }
        eventually(lambda: _ready(f"{url}/models/echo/ready"))
        assert httpx.get(f"{url}/readyz").status_code == 200
        (tmp_path / "texts.txt").write_text("one\ntwo\n")
        file = str(tmp_path / "texts.txt")
        done = json.loads(
            run(environ, "submit", file, "--model", "echo", "--wait", "--json").stdout
        )
        assert (done["state"], done["counts"]["succeeded"]) == ("completed", 2)
        lines = run(environ, "results", done["id"]).stdout.splitlines()
        assert [json.loads(line)["output"] for line in lines] == ["one", "two"]
        assert json.loads(run(environ, "infer", "--model", "echo", "hello").stdout) == "hello"
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        eventually(lambda: None not in {one.poll() for one in processes.values()})
        assert [one.returncode for one in processes.values()] == [0, 0, 0]
        assert not (tmp_path / "never made").exists()


def _ready(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_a_file_with_faults_is_refused_by_line(environ: dict[str, str], tmp_path: Path) -> None:
    assert run(environ, "migrate").returncode == 0
    with spawned([*COMMAND, "api"], env=environ, stderr=subprocess.DEVNULL):
        url = f"http://127.0.0.1:{environ['MILLRACE_PORT']}"
        eventually(lambda: _ready(f"{url}/livez"))
        (tmp_path / "broken.jsonl").write_text('"fine"\n{"input": \n')
        refused = run(environ, "submit", str(tmp_path / "broken.jsonl"), "--model", "echo")
        assert refused.returncode == 1
        assert "line 2" in refused.stderr
        assert "not found" in run(environ, "job", "job_01h455vb4pex5vsknk084sn02q").stderr.lower()


def test_check_names_every_problem_at_once(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text('[[model]]\nname = "x"\nengine = "nothing"\n')
    wrong = {
        **os.environ,
        "MILLRACE_HOME": str(tmp_path),
        "MILLRACE_MODELS": str(tmp_path / "models.toml"),
        "MILLRACE_REDIS_URL": "redis://127.0.0.1:1/0",
        "MILLRACE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    }
    found = run(wrong, "check", "--json")
    assert found.returncode == 1
    problems = json.loads(found.stdout)["problems"]
    for part in ("version is missing", "no engine 'nothing'", "MILLRACE_REDIS_URL", "DATABASE_URL"):
        assert any(part in problem for problem in problems), part


def test_without_an_api_a_client_says_what_to_do(tmp_path: Path) -> None:
    nowhere = {**os.environ, "MILLRACE_PORT": str(free_port()), "MILLRACE_HOME": str(tmp_path)}
    refused = run(nowhere, "jobs")
    assert refused.returncode == 1
    assert "millrace up" in refused.stderr
    assert "Traceback" not in refused.stderr
