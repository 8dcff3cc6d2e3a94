"""Processes of a platform, each of the code of one folder, with PostgreSQL and Redis."""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import httpx

from jobs.settings import Settings
from jobs.store import roles
from ops.embedded import defaults, secret_key
from ops.embedded.layout import Layout
from ops.embedded.servers import EmbeddedServers
from ops.processes.children import Child
from ops.processes.ports import free_port
from tests.support.pace import pace
from tests.support.wait import eventually

_ROLES = {"api": roles.API, "keeper": roles.WORKER, "worker": roles.WORKER}


class Fleet:
    """Starts and drains processes; for the main thread."""

    def __init__(self, home: Path, models: Path) -> None:
        secret_key.ensure(home)
        configured = Settings(home=home, models=models, lease_s=20 * pace())
        self.settings = defaults.fill_in(configured)
        self.running = defaultdict[str, list[Child]](list)  #: by kind
        self._numbers = count(1)

    def migrate(self, code: Path) -> None:
        """Runs `millrace migrate` of that code, as the owner of the tables."""
        environment = {**os.environ, **_found_first(code), **self.settings.environment()}
        subprocess.run(_command("migrate"), env=environment, check=True)

    def start(self, code: Path, kind: str) -> Child:
        """Starts an api, whose address is its name, a keeper or a worker."""
        name = f"{kind}-{next(self._numbers)}"
        login = Layout.of(self.settings.home).postgres_url(_ROLES[kind])
        own = self.settings.evolve(port=free_port(), database_url=login)
        environment = _found_first(code) | own.environment()
        log = self.settings.home / "logs" / f"{name}.log"
        child = Child(own.url if kind == "api" else name, _command(kind), environment, log)
        child.start()
        self.running[kind].append(child)
        return child

    def drain(self, kind: str) -> None:
        """Ends the oldest process of a kind by SIGTERM, and checks that this was no failure."""
        child = self.running[kind].pop(0)
        child.terminate()
        eventually(lambda: not child.alive())
        assert child.process
        assert child.process.returncode == 0, f"{child.name} ended with {child.process.returncode}"

    def check(self) -> None:
        """Fails where a process has ended by itself."""
        children = [child for each in self.running.values() for child in each]
        assert [child.name for child in children if not child.alive()] == []


@contextmanager
def serving(home: Path, models: Path) -> Iterator[Fleet]:
    """A fleet without processes yet, whose servers run."""
    fleet = Fleet(home, models)
    with EmbeddedServers(home).running():
        try:
            yield fleet
        finally:
            for child in [child for each in fleet.running.values() for child in each]:
                child.kill()


def origin(code: Path) -> str:
    """Returns the file from which processes of that code import a package of ours."""
    inspect = [sys.executable, "-m", "inspect", "jobs.settings", "--details"]
    environment = {**os.environ, **_found_first(code)}
    said = subprocess.run(inspect, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return next(line for line in said.stdout.splitlines() if line.startswith("Origin: "))[8:]


def ready_workers(url: str) -> int:
    """Returns the number of workers that an api takes for ready."""
    workers = httpx.get(f"{url}/workers", timeout=60).raise_for_status().json()["data"]
    return sum(worker["state"] == "ready" for worker in workers)


def _command(kind: str) -> list[str]:
    return [sys.executable, "-m", "ops", kind]


def _found_first(code: Path) -> dict[str, str]:
    """Environment in which this code is found before what is installed, or lies in the folder."""
    return {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
