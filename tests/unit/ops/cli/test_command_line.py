"""Every command explains itself, prints JSON, and is completed by shells."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from api.app import create_app
from jobs.settings import Settings
from millrace import clock
from ops.cli.main import main
from tests.support.cases import each
from tests.support.command_line import COMMANDS, run_millrace
from tests.support.servers.receiver import Received, Reply, receiving

ROOT = Path(__file__).parents[4]
JOB = create_app(Settings()).openapi()["components"]["schemas"]["Job"]["examples"][0]
SILENT = {"api", "worker", "prepare", "keeper", "scaler"}
"""Processes, which print nothing."""
IN_ONE_FORM = {"completion", "router", "tenant-export"}
"""A script; nginx's configuration; JSON always, as of each benchmark."""


def test_every_command_explains_itself_and_prints_json_when_asked() -> None:
    listed = "".join(run_millrace("--help").output.split())  # lines are wrapped
    assert COMMANDS.keys() >= SILENT | IN_ONE_FORM
    for name, case in each(COMMANDS):
        with case:
            command = COMMANDS[name]
            shown = run_millrace(*name.split(), "--help").output
            epilog = command.epilog or ""
            assert epilog.startswith("Example: ")
            assert f"millrace {name.split()[0]}" in epilog
            assert "Example: " in shown
            if not isinstance(command, click.Group) and not name.startswith("bench "):
                flags = {flag for option in command.params for flag in option.opts}
                assert ("--json" in flags) == (name not in SILENT | IN_ONE_FORM)
            if name in main.commands:
                summary = command.get_short_help_str(limit=1000)
                assert not summary.endswith("...")
                assert name + "".join(summary.split()) in listed
    limits = {option.name: option.opts for option in COMMANDS["limits"].params}
    assert (limits["key"], limits["api_key"]) == (["--key"], ["--api-key"]), "an id, or a secret"
    [key] = [option for option in COMMANDS["jobs"].params if option.name == "api_key"]
    assert {*key.opts} >= {"--api-key", "--key"}


def run_alone(
    command: str, unwanted: set[str], **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Runs a command that must not load these modules."""
    code = f"""
import sys
from ops.cli.main import main
main({command.split()}, standalone_mode=False)
sys.exit(", ".join({unwanted} & sys.modules.keys()) or 0)
"""
    environ["PATH"] = os.environ["PATH"]
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True
    )


@pytest.mark.heavy
def test_the_help_of_a_command_loads_no_other_one() -> None:
    heavy = {"alembic", "celery", "fastapi", "numpy", "psycopg", "redis", "sqlalchemy", "torch"}
    done = run_alone("jobs --help", heavy)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.heavy
def test_a_command_reads_the_configuration_only_without_an_address() -> None:
    with receiving() as api:
        api.reply = lambda request: Reply(200, body=b'{"data": [], "next": null}')
        run_millrace("jobs", MILLRACE_PORT=str(api.port))
        environ = {"MILLRACE_URL": f"http://127.0.0.1:{api.port}", "MILLRACE_PORT": "no number"}
        done = run_alone("jobs", {"jobs.settings", "ops.embedded", "pydantic"}, **environ)
    assert done.returncode == 0, done.stderr
    assert [request.path for request in api.received] == ["/jobs?limit=20"] * 2


def completed(shell: str, *words: str) -> list[str]:
    """What click offers that shell for the last of the words."""
    environ = {
        "_MILLRACE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    }
    return CliRunner().invoke(main, [], env=environ, prog_name="millrace").output.split()


def test_zsh_and_fish_complete_commands_options_and_choices() -> None:
    assert "submit" in completed("zsh", "millrace", "sub")
    assert "fish_complete" not in completed("fish", "millrace", "sub")
    assert any("submit" in word for word in completed("fish", "millrace", "sub"))
    assert "--idempotency-key" in completed("zsh", "millrace", "submit", "--id")
    assert "parquet" in completed("zsh", "millrace", "results", "--format", "p")
    assert "rotate" in completed("zsh", "millrace", "keys", "ro")
    for shell in ("zsh", "fish"):
        script = run_millrace("completion", shell).output
        assert f"_MILLRACE_COMPLETE={shell}_complete" in script


@pytest.mark.heavy
def test_bash_completes_what_is_typed(tmp_path: Path) -> None:
    """The script, in a real bash."""
    command = tmp_path / "millrace"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ops "$@"\n')
    command.chmod(0o755)
    script = """
        eval "$(millrace completion bash)"
        ask() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _millrace_completion millrace
            echo "${COMPREPLY[*]}"
        }
        complete -p millrace
        ask millrace comp
        ask millrace jobs --st
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    registered, command_name, option = done.stdout.splitlines()
    assert "_millrace_completion" in registered
    assert (command_name, option) == ("completion", "--state")


def test_what_lies_in_s3_is_named_and_not_sent() -> None:
    csv, parquet = ("--format", "csv"), ("--output-format", "parquet")
    written = {"url": "s3://out/b/", "format": "jsonl", "compression": "none"}
    asked: dict[tuple[str, ...], dict[str, Any]] = {
        ("s3://in/a.jsonl",): {"input": {"url": "s3://in/a.jsonl"}},
        ("s3://in/a", *csv, "-o", "s3://out/b/"): {
            "input": {"url": "s3://in/a", "format": "csv"}, "output": written,
        },
        ("s3://in/a.jsonl.gz", "-o", "s3://out/b/", *parquet): {
            "input": {"url": "s3://in/a.jsonl.gz"}, "output": {**written, "format": "parquet"},
        },
    }  # fmt: skip
    for arguments, case in each(asked):
        with case:
            request = submitted(*arguments)
            assert request.headers["content-type"] == "application/json"
            sent = {"model": "minilm", "priority": 3, **asked[arguments]}
            assert json.loads(request.body) == sent


def submitted(*arguments: str) -> Received:
    """What `millrace submit` sends, to an api that takes anything."""
    with receiving() as api:
        api.reply = lambda request: Reply(202, body=json.dumps(JOB).encode())
        url = ("--model", "minilm", "--priority", "3", "--url", f"http://127.0.0.1:{api.port}")
        run_millrace("submit", *arguments, *url)
    [request] = api.received
    assert request.path == "/jobs"
    return request


def test_a_job_is_waited_for_until_its_results_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "sleep", lambda seconds: None)
    states = ["pending", "writing", "complete"]

    def answer(request: Received) -> Reply:
        state = states.pop(0) if states else "failed"
        output = {"url": "s3://out/b/", "state": state, "error": None}
        body = json.dumps({**JOB, "state": "completed", "output": output})
        return Reply(200, body=body.encode())

    with receiving() as api:
        api.reply = answer
        follow = ("job", "job_1", "--follow", "--url", f"http://127.0.0.1:{api.port}")
        assert "s3://out/b/ complete" in run_millrace(*follow).output
        run_millrace(*follow, status=1)
