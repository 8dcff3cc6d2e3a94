"""A platform that runs from an environment with the wheel."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import httpx

from ops.processes.ports import free_port
from tests.packaging.kit import Environment
from tests.support.processes import spawned


class Running:
    """`millrace up` of an environment, until SIGTERM."""

    def __init__(self, environment: Environment, home: Path, **ours: str) -> None:
        self.environment = environment
        self._port = str(free_port())
        self._ours = {
            "MILLRACE_HOME": str(home),
            "MILLRACE_PORT": self._port,
            "MILLRACE_URL": f"http://127.0.0.1:{self._port}",
            **ours,
        }

    def cli(self, *words: str, status: int = 0) -> str:
        return self.environment.run("millrace", *words, status=status, **self._ours).stdout

    def by(self, other: Environment) -> "Running":
        """Returns this platform as another environment's commands reach it."""
        apart = copy(self)
        apart.environment = other
        return apart

    def python(self, code: str) -> str:
        return self.environment.run("python", "-c", code, **self._ours).stdout

    def get(self, path: str) -> Any:
        return httpx.get(self._ours["MILLRACE_URL"] + path).raise_for_status().json()

    def job(self, model: str, folder: Path) -> list[Any]:
        """Runs a job of two texts; returns its outputs."""
        (folder / "texts.txt").write_text("one\ntwo\n")
        out = folder / f"{model}.jsonl"
        self.cli("submit", str(folder / "texts.txt"), "--model", model, "--wait", "-o", str(out))
        return [json.loads(line)["output"] for line in out.read_text().splitlines()]

    @contextmanager
    def up(self, log: Path) -> Iterator[None]:
        """Runs it, ready, and ends it; `log` gets what it says to standard error."""
        command = [str(self.environment.bin / "millrace"), "up", "--json"]
        ours = {"env": self.environment.environ(**self._ours), "cwd": log.parent}
        with log.open("w") as stderr, spawned(
            command, **ours, stdout=subprocess.PIPE, stderr=stderr
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["ready"] is True
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
