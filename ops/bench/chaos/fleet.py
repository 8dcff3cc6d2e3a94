"""The processes: two api, two keepers, three workers, a PostgreSQL and a Redis of their own."""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis

from jobs import clock
from jobs.settings import Settings
from jobs.store import db
from migrations.run import migrate
from ops.bench.chaos.workload import MODELS
from ops.embedded import EmbeddedServers, defaults
from ops.processes.children import Child, Supervisor
from ops.supervisor.platform import free_port

LEASE_S = 3.0
_READY_WITHIN_S = 120.0
_APIS, _KEEPERS, _WORKERS = 2, 2, 3


@dataclass(frozen=True, slots=True)
class Look:
    """A process as /proc shows it. state: one letter; born: tells it from a later one of that
    pid."""

    state: str
    parent: int
    born: int


def look(pid: int) -> Look | None:
    """None: it has ended, whether or not its parent has noticed."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else Look(fields[0], int(fields[1]), int(fields[19]))


class Fleet:
    """Every method but `ask` belongs to the main thread."""

    def __init__(self, home: Path) -> None:
        self.home = home
        models = home / "models.toml"
        models.write_text(MODELS)
        self.servers = EmbeddedServers(home)
        found = Settings(home=home, lease_s=LEASE_S, models=models)
        self.settings = defaults.fill_in(found)
        self.ports = [free_port() for _ in range(_APIS)]
        self.apis = [self._child("api", n, port=port) for n, port in enumerate(self.ports, 1)]
        self.keepers = [self._child("keeper", n) for n in range(1, _KEEPERS + 1)]
        self.workers = [self._child("worker", n) for n in range(1, _WORKERS + 1)]
        self.supervisor = Supervisor([*self.apis, *self.keepers, *self.workers])
        self.redis = redis.Redis.from_url(self.settings.redis_url, socket_timeout=2)
        self._down_until_s: dict[str, float] = {}
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def _child(self, command: str, number: int, **changes: Any) -> Child:
        name = f"{command}-{number}"
        environment = self.settings.evolve(**changes).environment()
        argv = [sys.executable, "-m", "ops", command]
        return Child(name, argv, environment, self.home / "logs" / f"{name}.log")

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def start(self) -> None:
        """Returns once both api answer and all workers are ready."""
        self.servers.start()
        engine = db.connect(self.settings.database_url, pool_size=1)
        migrate(engine)
        engine.dispose()
        self.supervisor.start()
        deadline_s = clock.monotonic() + _READY_WITHIN_S
        while not self._ready():
            self.poll()
            if clock.monotonic() > deadline_s:
                raise TimeoutError(f"the fleet isn't ready; see the logs in {self.home}/logs")
            clock.sleep(0.1)

    def _ready(self) -> bool:
        try:
            answers = [httpx.get(f"{url}/readyz", timeout=5).status_code for url in self.urls]
        except httpx.TransportError:
            return False
        return set(answers) == {200} and self.ask(
            """
            SELECT 1 WHERE (SELECT count(*) FROM workers WHERE state = 'ready') >= %s
        """,
            [_WORKERS],
        ) == [(1,)]

    def poll(self) -> None:
        """Starts again what has ended, but for a server that is to stay down a while."""
        for server in (self.servers.postgres, self.servers.redis):
            due_s = self._down_until_s.get(server.name, 0.0)
            if not server.alive() and clock.monotonic() >= due_s:
                server.start()
        self.supervisor.poll()

    def keep_down(self, server: str, seconds: float) -> None:
        """When it ends now, it starts again so much later."""
        self._down_until_s[server] = clock.monotonic() + seconds

    def ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]] | None:
        """The rows of a query; None while the database is away."""
        try:
            if self._connection is None or self._connection.closed:
                url = db.plain_url(self.settings.database_url)
                self._connection = psycopg.connect(url, autocommit=True, connect_timeout=2)
            return self._connection.execute(query, values).fetchall()
        except psycopg.OperationalError:
            self._connection = None
            return None

    def ended_with(self, child: Child, pid: int) -> str | None:
        """How a worker's supervisor saw that process of its own end."""
        assert child.log
        said = child.log.read_text(errors="replace")
        found = re.search(rf"\(pid {pid}\) ended with (exit code \d+|\w+)", said)
        return found and found[1]

    def stop(self) -> None:
        self.supervisor.stop(grace_s=10.0)
        if self._connection is not None:
            self._connection.close()
        self.redis.close()
        self.servers.stop()


def send(pid: int, number: int) -> bool:
    """Whether there was a process to send the signal to."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
