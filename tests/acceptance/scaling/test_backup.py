"""Backup of a platform that runs, and its restore into an empty home."""

import json
from pathlib import Path

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.support.command_line import run_millrace
from tests.support.jobs import paused
from tests.support.platforms import POOLS, Platforms, spec
from tests.support.wait import eventually

PLATFORM = POOLS

LONG = "x" * 5000  # is stored as a blob


def submit(http: httpx.Client, items: list[str]) -> str:
    return str(http.post("/jobs", json={"model": "echo", "items": items}).json()["id"])


def state(http: httpx.Client, job: str) -> str:
    return str(http.get(f"/jobs/{job}").json()["state"])


def outputs(http: httpx.Client, job: str) -> list[str]:
    lines = http.get(f"/jobs/{job}/results").text.splitlines()
    return [json.loads(line)["output"] for line in lines]


@pytest.mark.nightly
def test_every_job_of_a_backup_is_there_after_a_restore_and_goes_on(
    platform: Platform, platforms: Platforms, http: httpx.Client, tmp_path: Path
) -> None:
    texts = [f"{LONG}{n}" for n in range(100)]
    ended, held = submit(http, [LONG, "a"]), paused(http, "echo", texts)
    running = submit(http, texts)  # or already ended, by the time of the backup
    eventually(lambda: state(http, ended) == "completed")
    environ = {"MILLRACE_HOME": str(platform.settings.home)}
    run_millrace("backup", str(tmp_path / "backup"), **environ)
    late = submit(http, ["after the backup"])
    run_millrace("backup", str(tmp_path / "backup"), status=1, **environ)  # it is there already

    home = tmp_path / "restored"
    run_millrace("restore", str(tmp_path / "backup"), MILLRACE_HOME=str(home))
    key = "secret.key"
    assert (home / key).read_text() == (platform.settings.home / key).read_text()
    run_millrace("restore", str(tmp_path / "backup"), status=1, MILLRACE_HOME=str(home))
    with (
        platforms.running(spec(blob_over_kb=1), home=home) as restored,
        httpx.Client(base_url=restored.url) as there,
    ):
        assert outputs(there, ended) == [LONG, "a"]
        assert there.get(f"/jobs/{late}").status_code == 404
        there.post(f"/jobs/{held}/resume").raise_for_status()
        for job in (running, held):
            eventually(lambda job=job: state(there, job) == "completed")
            assert outputs(there, job) == texts
