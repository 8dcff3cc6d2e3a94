"""Whole platform in one command: embedded services, migrations, api, keeper, workers."""

import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from api.auth import bind_check
from jobs import clock, settings
from jobs.settings import Settings, SettingsError
from jobs.store import db
from jobs.telemetry.metrics import exposition
from migrations.run import migrate
from ops.client.client import tls_context
from ops.embedded import defaults, secret_key
from ops.embedded.postgres import EmbeddedPostgres
from ops.embedded.servers import EmbeddedServers
from ops.processes.children import Child, Supervisor
from ops.processes.ports import free_port, free_ports
from ops.supervisor.worker import WatchedWorker

_POLL_S = 0.1
_READY_WITHIN_S = 120.0
_GRACE_S = 30.0
_UP_ASKS_TOO = (
    "MILLRACE_TLS_CLIENT_CA asks clients for certificates, and `millrace up` is one when it waits "
    "for its api: set MILLRACE_CLIENT_CERT and MILLRACE_CLIENT_KEY"
)


class PortTaken(Exception):
    """Reports that another process listens on the api's port."""


class Platform:
    """Everything that `millrace up` runs; for the main thread."""

    def __init__(self, found: Settings, workers: int = 1, logs: Path | None = None) -> None:
        if found.tls_client_ca and not found.client_cert:
            raise SettingsError([_UP_ASKS_TOO])
        if not (found.secret_key or found.database_url):
            secret_key.ensure(found.home)
        self.settings = defaults.fill_in(found).evolve(await_workers=True)
        self.servers = EmbeddedServers(
            found.home, postgres=not found.database_url, redis=not found.redis_url
        )
        api, worker = (self._logged_in(role, found) for role in (db.API, db.WORKER))
        keeper, *each = (
            worker.evolve(metrics_port=port) for port in _metrics_ports(found, 1 + workers)
        )
        self._listening = [keeper, *each] if found.metrics else []
        self.supervisor = Supervisor(
            [
                _child("api", "api", api.evolve(metrics_port=0), logs),
                _child("keeper", "workers.keeper", keeper, logs),
                *(
                    WatchedWorker(f"worker-{n}", its, logs and logs / f"worker-{n}.log")
                    for n, its in enumerate(each, 1)
                ),
            ]
        )

    def _logged_in(self, role: str, found: Settings) -> Settings:
        """Settings of a process of that role, with its own login at the embedded database."""
        if found.database_url:
            return self.settings
        return self.settings.evolve(database_url=EmbeddedPostgres(found.home).url_of(role))

    @property
    def url(self) -> str:
        """Address of the api."""
        return self.settings.url

    @property
    def metrics(self) -> list[str]:
        """Addresses of metrics: those of the api, the keeper, each worker."""
        others = [exposition.url(its) for its in self._listening]
        return [f"{self.url}/metrics", *others] if others else []

    def start(self, stop_requested: Callable[[], bool] = lambda: False) -> None:
        """Returns once calls are answered, or a stop is requested.

        Raises EmbeddedError, PortTaken, SettingsError, TimeoutError; then nothing is left running.
        """
        _check_port(self.settings)
        for its in self._listening:
            exposition.check_port(its)
        try:
            self.servers.start()
            _prepare(self.settings)
            self.supervisor.start()
            self._await_ready(stop_requested)
        except BaseException:
            self.stop()
            raise

    def _await_ready(self, stop_requested: Callable[[], bool]) -> None:
        deadline_s = clock.monotonic() + _READY_WITHIN_S
        with httpx.Client(base_url=self.url, timeout=5, verify=_own_api(self.settings)) as client:
            while not stop_requested() and not _is_ready(client):
                self.poll()
                if clock.monotonic() > deadline_s:
                    raise TimeoutError(f"not ready within {_READY_WITHIN_S:g} s; see the log above")
                clock.sleep(_POLL_S)

    def poll(self) -> None:
        """Restarts processes that have ended."""
        self.servers.poll()
        self.supervisor.poll()

    def run(self, stop_requested: Callable[[], bool]) -> None:
        """Keeps everything running until a stop is requested."""
        while not stop_requested():
            self.poll()
            clock.sleep(_POLL_S)

    def stop(self) -> None:
        """Stops everything, after workers have released their slices."""
        self.supervisor.stop(_GRACE_S)
        self.servers.stop()


def _child(name: str, module: str, found: Settings, logs: Path | None) -> Child:
    log = logs and logs / f"{name}.log"
    return Child(name, [sys.executable, "-m", module], found.environment(), log)


def _own_api(found: Settings) -> ssl.SSLContext:
    """TLS context for our own api: its certificate needn't have the address it listens on."""
    context = tls_context(found)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _prepare(found: Settings) -> None:
    engine = db.connect(found.database_url, pool_size=1)
    try:
        migrate(engine)
        bind_check.check(found, engine)
    finally:
        engine.dispose()


def _check_port(found: Settings) -> None:
    family = socket.AF_INET6 if ":" in found.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((found.host, found.port))
        except OSError as error:
            raise PortTaken(
                f"{found.host}:{found.port} can't be listened on ({error.strerror}); "
                "end what uses it, or set MILLRACE_PORT"
            ) from error


def _metrics_ports(found: Settings, count: int) -> list[int]:
    """Ports of all processes but the api: from the configured one, or free ones."""
    if not found.metrics:
        return [0] * count
    first = found.metrics_port
    return list(range(first, first + count)) if first else free_ports(count)


class StopSignal:
    """True, when called, once SIGINT or SIGTERM came."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def __call__(self) -> bool:
        return self._asked


@contextmanager
def running(home: Path, workers: int = 1, **changes: object) -> Iterator[Platform]:
    """Runs a platform in a folder, on a free port, logging to files: for demos and tests."""
    found = settings.Settings(home=home, port=free_port()).evolve(**changes)
    platform = Platform(found, workers, logs=home / "logs")
    platform.start()
    try:
        yield platform
    finally:
        platform.stop()
