"""`millrace doctor`: what a machine lacks, and how to mend it."""

import json
import socket
from pathlib import Path

import pytest

from jobs.settings import Settings
from ops.cli.setup import machine
from ops.processes.ports import free_port
from tests.support.command_line import run_millrace

pytestmark = pytest.mark.heavy


def checks(status: int, **environ: str) -> dict[str, dict[str, str]]:
    printed = run_millrace("doctor", "--json", status=status, **environ)
    found = {check["name"]: check for check in json.loads(printed.output)["checks"]}
    assert all(check["mend"] for check in found.values() if check["state"] != "ok")
    return found


def test_a_machine_is_checked_in_every_respect(tmp_path: Path) -> None:
    found = checks(0, MILLRACE_HOME=str(tmp_path / "home"), MILLRACE_PORT=str(free_port()))
    names = "models port home disk memory files torch postgres redis clock"
    assert [*found] == names.split()
    assert found["postgres"]["words"] == "embedded: `millrace up` starts postgres"
    assert not (tmp_path / "home").exists()


def test_what_must_be_mended_is_named_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = checks(
            1,
            MILLRACE_HOME=str(tmp_path / "file"),
            MILLRACE_PORT=str(port),
            MILLRACE_MODELS=str(tmp_path / "none.toml"),
            MILLRACE_DEVICE="cuda:9",
            MILLRACE_DATABASE_URL=f"postgresql://u@127.0.0.1:{free_port()}/m",
            MILLRACE_REDIS_URL=f"redis://127.0.0.1:{free_port()}/0",
        )
    broken = {name for name, check in found.items() if check["state"] == "problem"}
    assert broken >= {"models", "port", "home", "postgres", "redis"}
    for name in ("port", "home", "postgres", "redis"):
        assert "MILLRACE_" in found[name]["mend"]


def test_settings_that_are_wrong_come_first() -> None:
    found = checks(1, MILLRACE_PORT="many")
    assert [*found] == ["settings"]
    assert "MILLRACE_PORT" in found["settings"]["words"]


def test_what_there_is_too_little_of_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = machine.disk(Settings(home=tmp_path, min_free_mb=1 << 40))
    assert full.state == "problem"
    assert "MILLRACE_HOME" in full.mend
    monkeypatch.setattr(machine, "_MEMORY", tmp_path / "meminfo")
    for free_mb, state in ((255, "problem"), (1023, "warning"), (1025, "ok")):
        (tmp_path / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {free_mb * 1024} kB\n")
        assert machine.memory().state == state
    for most, state in ((512, "problem"), (4096, "warning")):
        monkeypatch.setattr(machine.resource, "getrlimit", lambda _, most=most: (256, most))
        assert machine.open_files().state == state
