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
from tests.support.children import answers
from tests.support.platforms import LIGHT
from tests.support.processes import spawned
from tests.support.wait import PATIENCE_S, eventually

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


def test_migrate_can_be_repeated_and_run_several_times_at_once(environ: dict[str, str]) -> None:
    with ExitStack() as stack:
        migrating = (spawned([*COMMAND, "migrate"], env=environ) for _ in range(4))
        several = [stack.enter_context(one) for one in migrating]
        assert [process.wait() for process in several] == [0, 0, 0, 0]
    assert run(environ, "migrate").returncode == 0
    assert run(environ, "check").returncode == 0


def test_single_processes_serve_and_end_on_sigterm(environ: dict[str, str], tmp_path: Path) -> None:
    environ["MILLRACE_MODELS"] = str(tmp_path / "models.toml")
    (tmp_path / "models.toml").write_text(LIGHT)
    assert run(environ, "migrate").returncode == 0
    url = f"http://127.0.0.1:{environ['MILLRACE_PORT']}"
    with ExitStack() as stack:
        starting = (spawned([*COMMAND, name], env=environ) for name in ("api", "keeper", "worker"))
        processes = [stack.enter_context(one) for one in starting]
        eventually(lambda: answers(url, "/models/echo/ready"))
        assert httpx.get(f"{url}/readyz").status_code == 200
        (tmp_path / "texts.txt").write_text("one\ntwo\n")
        file = str(tmp_path / "texts.txt")
        submitted = run(environ, "submit", file, "--model", "echo", "--wait", "--json")
        done = json.loads(submitted.stdout)
        assert (done["state"], done["counts"]["succeeded"]) == ("completed", 2)
        lines = run(environ, "results", done["id"]).stdout.splitlines()
        assert [json.loads(line)["output"] for line in lines] == ["one", "two"]
        assert json.loads(run(environ, "infer", "--model", "echo", "hello").stdout) == "hello"
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(PATIENCE_S) for process in processes] == [0, 0, 0]
        assert not (tmp_path / "never made").exists()


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
