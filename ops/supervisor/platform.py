"""Whole platform in one command: embedded services, migrations, api, keeper, workers."""

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import click

from jobs import clock
from jobs.settings import Settings, SettingsError
from jobs.store import roles
from jobs.telemetry.metrics import exposition
from ops.client.tls import tls_context
from ops.embedded import defaults, secret_key
from ops.embedded.layout import Layout
from ops.embedded.servers import EmbeddedServers
from ops.processes.children import Child, Supervisor
from ops.processes.forking import ForkedChild, ForkServer
from ops.processes.ports import free_port, free_ports
from ops.supervisor import connections
from ops.supervisor.worker import WatchedWorker, fork_server

_READY_POLL_S, _ANSWER_S = 0.05, 5.0
_READY_WITHIN_S = 120.0
_GRACE_S = 30.0
_FORK_SERVER = ForkServer("api.server")
"""Server for api and keeper of all platforms of this process: tests start many."""
_CLIENT_CERTIFICATE_MISSING = (
    "MILLRACE_TLS_CLIENT_CA asks clients for certificates, and `millrace up` is one when it waits "
    "for its api: set MILLRACE_CLIENT_CERT and MILLRACE_CLIENT_KEY"
)


class PortTaken(click.ClickException):
    """Reports that another process listens on the api's port."""


class Platform:
    """Everything that `millrace up` runs; for the main thread."""

    def __init__(self, configured: Settings, workers: int = 1, logs: Path | None = None) -> None:
        if configured.tls_client_ca and not configured.client_cert:
            raise SettingsError([_CLIENT_CERTIFICATE_MISSING])
        if not (configured.secret_key or configured.database_url):
            secret_key.ensure(configured.home)
        self.settings = defaults.fill_in(configured).evolve(await_workers=True)
        self.servers = EmbeddedServers(
            configured.home, postgres=not configured.database_url, redis=not configured.redis_url
        )
        postgres = self.servers.postgres
        postgres.connections = max(postgres.connections, connections.most(workers))
        self._workers = workers
        api, worker = (self._logged_in(role, configured) for role in (roles.API, roles.WORKER))
        ports = _metrics_ports(configured, 1 + workers)
        keeper, *each = (worker.evolve(metrics_port=port) for port in ports)
        self._with_metrics = [keeper, *each] if configured.metrics else []
        self._worker_server = server = fork_server(worker)
        self.supervisor = Supervisor(
            [
                _child("api", "api", api.evolve(metrics_port=0), logs),
                *(
                    WatchedWorker(server, f"worker-{n}", its, logs and logs / f"worker-{n}.log")
                    for n, its in enumerate(each, 1)
                ),
                _child("keeper", "workers.keeper", keeper, logs),  # nobody waits for it
            ]
        )

    def _logged_in(self, role: str, configured: Settings) -> Settings:
        """Settings of a process of that role, with its own login at the embedded database."""
        if configured.database_url:
            return self.settings
        return self.settings.evolve(database_url=Layout.of(configured.home).postgres_url(role))

    @property
    def url(self) -> str:
        """Address of the api."""
        return self.settings.url

    @property
    def metrics(self) -> list[str]:
        """Addresses of metrics: those of the api, the keeper, each worker."""
        others = [exposition.url(settings) for settings in self._with_metrics]
        return [f"{self.url}/metrics", *others] if others else []

    def start(self, stop_requested: Callable[[], bool] = lambda: False) -> None:
        """Returns once the api is ready, or a stop is requested.

        Raises EmbeddedError, PortTaken, SettingsError, TimeoutError; then nothing is left running.
        """
        _check_port(self.settings)
        for settings in self._with_metrics:
            exposition.check_port(settings)
        try:
            _FORK_SERVER.start()
            self._worker_server.start()
            self.servers.launch()
            # Loads SQLAlchemy, while the fork servers import and PostgreSQL starts.
            from ops.supervisor import database_setup

            self.servers.await_ready()
            database_setup.prepare(self.settings, self._workers)
            self.supervisor.start()
            self._await_ready(stop_requested)
        except BaseException:
            self.stop()
            raise

    def _await_ready(self, stop_requested: Callable[[], bool]) -> None:
        deadline_s = clock.monotonic() + _READY_WITHIN_S
        with closing(_connection(self.settings)) as api:
            while not stop_requested() and not _is_ready(api):
                self.poll()
                if clock.monotonic() > deadline_s:
                    raise TimeoutError(f"not ready within {_READY_WITHIN_S:g} s; see the log above")
                clock.sleep(_READY_POLL_S)

    def poll(self) -> None:
        """Restarts processes that have ended."""
        self.servers.poll()
        self.supervisor.poll()

    def run(self, stop_requested: Callable[[], bool]) -> None:
        """Keeps everything running until a stop is requested."""
        while not stop_requested():
            self.poll()
            self.supervisor.pause(self.servers.processes())

    def stop(self) -> None:
        """Stops everything, after workers have released their slices."""
        self.supervisor.stop(_GRACE_S)
        self.servers.stop()


def _child(name: str, module: str, configured: Settings, logs: Path | None) -> Child:
    log = logs and logs / f"{name}.log"
    return ForkedChild(_FORK_SERVER, name, module, configured.environment(), log)


def _own_tls_context(configured: Settings) -> ssl.SSLContext:
    """TLS context for our own api: its certificate needn't have the address it listens on."""
    context = tls_context(configured)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _connection(configured: Settings) -> http.client.HTTPConnection:
    address = urlsplit(configured.url)
    host, port = str(address.hostname), address.port
    if address.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
    context = _own_tls_context(configured)
    return http.client.HTTPSConnection(host, port, timeout=_ANSWER_S, context=context)


def _is_ready(api: http.client.HTTPConnection) -> bool:
    try:
        api.request("GET", "/readyz")
        answer = api.getresponse()
        answer.read()
        return answer.status == http.client.OK
    except (OSError, http.client.HTTPException):
        api.close()
        return False


def _check_port(configured: Settings) -> None:
    family = socket.AF_INET6 if ":" in configured.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((configured.host, configured.port))
        except OSError as error:
            raise PortTaken(
                f"{configured.host}:{configured.port} can't be listened on ({error.strerror}); "
                "end what uses it, or set MILLRACE_PORT"
            ) from error


def _metrics_ports(configured: Settings, count: int) -> list[int]:
    """Ports of all processes but the api: from the configured one, or free ones."""
    if not configured.metrics:
        return [0] * count
    first = configured.metrics_port
    return list(range(first, first + count)) if first else free_ports(count)


@contextmanager
def running(home: Path, workers: int = 1, **changes: object) -> Iterator[Platform]:
    """Runs a platform in a folder, on a free port, logging to files: for demos and tests."""
    configured = Settings(home=home, port=free_port()).evolve(**changes)
    platform = Platform(configured, workers, logs=home / "logs")
    platform.start()
    try:
        yield platform
    finally:
        platform.stop()
