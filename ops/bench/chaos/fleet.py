"""Processes under test: apis, keepers, workers, PostgreSQL and Redis."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis

from jobs import clock
from jobs.calls.redis import connect
from jobs.processes import packages
from jobs.settings import Settings
from jobs.store import db
from migrations.run import migrate
from ops.bench.chaos.network import links
from ops.bench.chaos.network.faulty_proxy import FaultyProxy
from ops.bench.chaos.servers.replicated import ReplicatedServers
from ops.bench.harness.platform import wait_until
from ops.embedded import defaults
from ops.embedded.servers import EmbeddedServers
from ops.processes.children import Child, Process, Supervisor
from ops.processes.ports import free_port

LEASE_S = 3.0
_MIN_FREE_MB = 96  # below which intake is refused: more than the ballast's
_MODELS = Path(__file__).with_name("models.toml")
_READY_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Look:
    """Process as /proc shows it."""

    state: str  #: one letter
    parent: int
    born: int  #: start time, which differs for a later process of the same pid


def look(pid: int) -> Look | None:
    """Reads /proc; None if the process has ended, even if its parent has not reaped it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else Look(fields[0], int(fields[1]), int(fields[19]))


class Fleet:
    """Starts, restarts and stops the processes; for the main thread, but for `query`."""

    def __init__(
        self,
        home: Path,
        models: Path = _MODELS,
        *,
        apis: int = 2,
        keepers: int = 2,
        workers: int = 3,
    ) -> None:
        """models: models file that they serve; then how many processes of each kind."""
        self.home = home
        self.servers = self._make_servers()
        self.logs = home.with_name("logs")  # the home's disk may be full
        configured = Settings(home=home, lease_s=LEASE_S, models=models, min_free_mb=_MIN_FREE_MB)
        self.settings = defaults.fill_in(configured)
        self.ports = [free_port() for _ in range(apis)]  #: of the apis, past all proxies
        counts = {"api": apis, "keeper": keepers, "worker": workers}
        self._link([f"{kind}-{n}" for kind, count in counts.items() for n in range(1, count + 1)])
        self.apis = [self._child("api", n, port=port) for n, port in enumerate(self.ports, 1)]
        self.keepers = [self._child("keeper", n) for n in range(1, keepers + 1)]
        self.workers = [self._child("worker", n) for n in range(1, workers + 1)]
        self.supervisor = Supervisor([*self.apis, *self.keepers, *self.workers])
        self.redis = self._connect_to_redis()
        self.stops = Counter[str]()  #: how often faults stopped each of them
        self.drained = set[str]()  #: names of those that are draining
        self._down_until_s: dict[str, float] = {}
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._is_frozen = False

    def _make_servers(self) -> EmbeddedServers:
        return EmbeddedServers(self.home)

    def _link(self, children: Sequence[str]) -> None:
        """Prepares what lies between these processes and the servers."""

    def _addresses(self, child: str) -> dict[str, str]:
        """Settings by which a process reaches the servers, where they aren't the usual ones."""
        return {}

    def _connect_to_redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.settings.redis_url, socket_timeout=2)

    def _child(self, command: str, number: int, **changes: Any) -> Child:
        name = f"{command}-{number}"
        changes |= self._addresses(name)
        environment = self.settings.evolve(**changes).environment()
        argv = packages.command("ops", command)
        return Child(name, argv, environment, self.logs / f"{name}.log")

    @property
    def urls(self) -> list[str]:
        """Addresses of the apis."""
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    @property
    def database_url(self) -> str:
        """Address of PostgreSQL, past all proxies."""
        return self.servers.postgres.url

    def start(self) -> None:
        """Returns once both api answer and all workers are ready."""
        self.servers.start()
        engine = db.connect(self.database_url, pool_size=1)
        migrate(engine)
        engine.dispose()
        self.supervisor.start()
        what = f"the fleet is ready (logs in {self.logs})"
        wait_until(self._is_ready, what, _READY_WITHIN_S)

    def _is_ready(self) -> bool:
        self.poll()
        count = "SELECT count(*) >= %s FROM workers WHERE state = 'ready'"
        ready = self.query(count, [len(self.workers)])
        return self.apis_answer() and ready == [(True,)]

    def apis_answer(self) -> bool:
        """Returns True if every api is ready."""
        try:
            answers = {httpx.get(f"{url}/readyz", timeout=5).status_code for url in self.urls}
        except httpx.TransportError:
            return False
        return answers == {200}

    def poll(self) -> None:
        """Restarts processes that have ended, but for a server that is kept down."""
        now_s = clock.monotonic()
        self.servers.poll([name for name, due_s in self._down_until_s.items() if now_s < due_s])
        self.supervisor.poll()

    def keep_down(self, server: str, seconds: float) -> None:
        """Delays the next restart of a server."""
        self._down_until_s[server] = clock.monotonic() + seconds

    def query(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]] | None:
        """Rows of a query; None while the database is down or frozen."""
        if self._is_frozen:
            return None
        try:
            if self._connection is None or self._connection.closed:
                url = db.plain_url(self.database_url)
                self._connection = psycopg.connect(url, autocommit=True, connect_timeout=2)
            return self._connection.execute(query, values).fetchall()
        except psycopg.OperationalError:
            self._connection = None
            return None

    @contextmanager
    def no_queries(self) -> Iterator[None]:
        """Answers no query: PostgreSQL is frozen, and a query would wait for what continues it, or
        for ever where another server takes its place."""
        self._is_frozen = True
        try:
            yield
        finally:
            self._is_frozen = False
            if self._connection is not None:
                self._connection.close()

    @contextmanager
    def draining(self, child: Child) -> Iterator[None]:
        """Has the health probe leave a process alone that accepts no more connections."""
        self.drained.add(child.name)
        try:
            yield
        finally:
            self.drained.discard(child.name)

    def ended_with(self, child: Child, pid: int) -> str | None:
        """Wait status of a worker's process, from its supervisor's log."""
        assert child.log
        text = child.log.read_text(errors="replace")
        found = re.search(rf"\(pid {pid}\) ended with (exit code \d+|\w+)", text)
        return found and found[1]

    def stop(self) -> None:
        """Stops all processes."""
        self.supervisor.stop(grace_s=10.0)
        if self._connection is not None:
            self._connection.close()
        self.redis.close()
        self.servers.stop()


class ChaosFleet(Fleet):
    """Fleet whose servers may be replaced, and whose processes reach each other through proxies
    of their own: PostgreSQL at either of two hosts, Redis by way of Sentinels."""

    servers: ReplicatedServers

    def _make_servers(self) -> ReplicatedServers:
        return ReplicatedServers(self.home)

    def _link(self, children: Sequence[str]) -> None:
        self._opened = ExitStack()
        opened = links.between(self.servers, children, self.ports)
        self.links: dict[str, FaultyProxy] = self._opened.enter_context(opened)

    def _addresses(self, child: str) -> dict[str, str]:
        return links.addresses(self.links, child, self.servers)

    def _connect_to_redis(self) -> redis.Redis:
        return connect(self.redis_url, 2.0)

    @property
    def redis_url(self) -> str:
        """Address of Redis, past all proxies."""
        return self.servers.group.url

    @property
    def client_ports(self) -> list[int]:
        """Ports of the apis for their clients, through proxies."""
        return [self.links[links.of_client(api.name)].port for api in self.apis]

    def server(self, name: str) -> Process | None:
        """Process of `postgres` or of `redis` that has the role now."""
        return self.servers.group.process if name == "redis" else self.servers.postgres.process

    def stop(self) -> None:
        super().stop()
        self._opened.close()


def send(pid: int, number: int) -> bool:
    """Sends a signal; returns False where the process has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
