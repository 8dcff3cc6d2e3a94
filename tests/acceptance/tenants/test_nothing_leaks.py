"""Secrets and payloads stay out of logs, answers, `millrace check`, reprs and argument lists."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs import settings as configuration
from jobs.settings import Settings, is_secret
from millrace import Client
from ops.embedded.servers import EmbeddedServers
from ops.supervisor.platform import Platform
from tests.support.models.entries import function, model
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

SECRET = "hunter2-is-a-secret-of-32-characters"
PASSWORD = "correct-horse-battery"
PAYLOAD = "the-patient-has-flu"
MODELS = model("echo", "echo", limits={"max_item_bytes": 1000}) + function("broken:quoting")


def with_password(url: str, user: str = "") -> str:
    """The same server: on its socket no password is asked for, and so any will do."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{user}:{PASSWORD}@{rest.rpartition('@')[2]}"


@pytest.fixture(scope="module")
def platform(
    tmp_path_factory: pytest.TempPathFactory, platforms: Platforms, module_database_url: str
) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("leaks")
    given = {"secret_key": SECRET, "database_url": with_password(module_database_url, "millrace")}
    files = {}
    for name, value in given.items():
        (folder / name).write_text(value + "\n")  # as editors and `echo` leave it
        files[f"MILLRACE_{name.upper()}_FILE"] = str(folder / name)
    found = configuration.load(files)
    secrets = {name: getattr(found, name) for name in given}
    with platforms.running(spec(MODELS, lease_s=2.0 * pace()), **secrets) as started:
        yield started


@pytest.fixture(scope="module")
def answers(http: httpx.Client, client: Client) -> list[str]:
    """Bodies and headers of answers to requests that go well, and that don't."""
    valid = f"{PAYLOAD} is valid"
    job = client.jobs.submit("echo", [valid]).id
    for id in (job, client.jobs.submit("quoting", [PAYLOAD]).id):
        client.jobs.wait(id)
    call, order = {"model": "echo", "input": PAYLOAD}, {"model": "echo", "items": ["a"]}
    calls: list[Any] = [{"input": valid}, {"model": "quoting"}, {"model": "minilm"}]
    calls += [{"input": PAYLOAD * 1000}, {"params": {PAYLOAD: PAYLOAD}}, {"timeout_ms": PAYLOAD}]
    orders: list[Any] = [{"items": [PAYLOAD * 1000]}, {"items": PAYLOAD}, {"priority": PAYLOAD}]
    orders.append({"items": [{"input": PAYLOAD, "custom_id": "\0" + PAYLOAD}]})
    orders.append({"metadata": {"k": PAYLOAD * 1000}})
    asked = [http.post("/infer", json=call | one) for one in calls]
    asked += [http.post("/jobs", json=order | one) for one in orders]
    asked.append(http.post("/jobs", content=PAYLOAD + "{"))
    paths = ("/readyz", "/livez", "/models", "/webhooks/secret", f"/jobs/{job}", "/nowhere")
    asked += map(http.get, paths)
    return [f"{answer.headers} {answer.text}" for answer in asked]


def logs(platform: Platform) -> dict[str, str]:
    return {path.name: path.read_text() for path in platform.settings.home.rglob("*.log")}


def test_no_secret_is_in_a_log_or_an_answer(platform: Platform, answers: list[str]) -> None:
    found = logs(platform)
    assert {"api.log", "keeper.log", "worker-1.log"} <= found.keys()
    for text in [*found.values(), *answers]:
        hides(text)


def hides(text: str, *where: str) -> None:
    assert SECRET not in text, where
    assert PASSWORD not in text, where


def test_no_secret_is_in_a_log_when_what_it_opens_is_away(
    tmp_path: Path, servers: EmbeddedServers
) -> None:
    """Every address leads nowhere: what is said of that names no password."""
    away = {
        "MILLRACE_HOME": str(tmp_path),
        "MILLRACE_DATABASE_URL": f"postgresql://u:{PASSWORD}@127.0.0.1:1/x",
        "MILLRACE_REDIS_URL": f"redis://:{PASSWORD}@127.0.0.1:1/0?password={PASSWORD}",
        "MILLRACE_BROKER_URL": f"amqp://u:{PASSWORD}@127.0.0.1:1//",
        "MILLRACE_SECRET_KEY": SECRET,
    }
    for command in (["check"], ["check", "--json"], ["migrate"], ["check", "--invariants"]):
        status, said = millrace(*command, environ=away)
        assert status != 0
        assert said
        hides(said, *command)


def test_check_shows_no_secret(platform: Platform) -> None:
    status, said = millrace("check", environ=platform.settings.environment())
    assert status == 0, said
    assert "MILLRACE_SECRET_KEY" in said
    hides(said)


def millrace(*arguments: str, environ: dict[str, str]) -> tuple[int, str]:
    """Exit status and output of a command in a process of its own."""
    command = [sys.executable, "-m", "ops", *arguments]
    environ = environ | {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_secrets_that_are_read_from_files_are_in_no_repr(platform: Platform) -> None:
    assert platform.settings.secret_key == SECRET
    assert PASSWORD in platform.settings.database_url
    hides(repr(platform.settings))
    named = {name for name, field in Settings.model_fields.items() if is_secret(field)}
    assert {"secret_key", "database_url", "redis_url", "broker_url"} <= named


def test_no_secret_is_in_an_argument_list(platform: Platform) -> None:
    for child in platform.supervisor.children:
        line = Path(f"/proc/{child.pid}/cmdline").read_bytes().decode()
        assert "-m" in line or "celeryd" in line
        hides(line)


def test_no_payload_is_in_a_log(platform: Platform, answers: list[str]) -> None:
    eventually(lambda: "ready" in "".join(logs(platform).values()))
    for name, text in logs(platform).items():
        assert PAYLOAD not in text, name
