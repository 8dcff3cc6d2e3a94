"""Whole platform in one command: embedded services, migrations, api, keeper, workers."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.models.watcher import ModelsFile
from jobs.settings import Settings, SettingsError
from jobs.states import API_POOL, PREPARE_POOL
from jobs.store import roles
from jobs.telemetry.metrics import exposition
from ops.embedded import defaults, secret_key
from ops.embedded.layout import Layout
from ops.embedded.servers import EmbeddedServers
from ops.processes.children import Child, Supervisor
from ops.processes.forking import ForkedChild, ForkServer
from ops.processes.owner import Step
from ops.processes.ports import free_port, free_ports
from ops.supervisor import connections
from ops.supervisor.local_workers import LocalWorkers, last_first
from ops.supervisor.readiness import NotReady, await_ready
from ops.supervisor.worker import WatchedWorker, fork_server, grace_s

if TYPE_CHECKING:  # loads SQLAlchemy
    from ops.supervisor.scaling import ScalingFollower

_FORK_SERVER = ForkServer("api.server")
"""Server for api and keeper of all platforms of this process: tests start many."""
_CLIENT_CERTIFICATE_MISSING = (
    "MILLRACE_TLS_CLIENT_CA asks clients for certificates, and `millrace up` is one when it waits "
    "for its api: set MILLRACE_CLIENT_CERT and MILLRACE_CLIENT_KEY"
)


class PortTaken(click.ClickException):
    """Reports that another process listens on the api's port."""


class Platform:
    """Everything that `millrace up` runs; for the main thread.

    workers: that are started; most_workers: up to which the autoscaler may have, where a policy
    says `local`; 0: it has no say; prepare_workers: that prepare items; None: one where a model of
    the models file asks for them; apis: that share the port; most_apis: as most_workers.
    """

    def __init__(
        self, configured: Settings, workers: int = 1, logs: Path | None = None,
        most_workers: int = 0, prepare_workers: int | None = None, apis: int = 1,
        most_apis: int = 0,
    ) -> None:  # fmt: skip
        if configured.tls_client_ca and not configured.client_cert:
            raise SettingsError([_CLIENT_CERTIFICATE_MISSING])
        if not (configured.secret_key or configured.database_url):
            secret_key.ensure(configured.home)
        self.settings = defaults.fill_in(configured).evolve(await_workers=True)
        self.servers = EmbeddedServers(
            configured.home, postgres=not configured.database_url, redis=not configured.redis_url
        )
        postgres = self.servers.postgres
        preparers = _preparers(configured, prepare_workers)
        self._workers, self._apis = max(workers, most_workers) + preparers, max(apis, most_apis)
        most = connections.most(self._workers, self._apis)
        postgres.connections = max(postgres.connections, most)
        api, worker = (self._logged_in(role, configured) for role in (roles.API, roles.WORKER))
        # A request for /metrics at a shared port would reach any of its apis.
        own = self._apis if self._apis > 1 else 0
        ports = _metrics_ports(configured, 1 + self._workers + own)
        keeper, *self._each = (worker.evolve(metrics_port=port) for port in ports[own:])
        sharing = [api.evolve(metrics_port=port, share_port=True) for port in ports[:own]]
        self._each_api = sharing or [api.evolve(metrics_port=0)]
        self._preparing = [_preparing(self._each.pop()) for _ in range(preparers)]
        with_metrics = [*sharing[:apis], keeper, *self._each[:workers], *self._preparing]
        self._with_metrics = with_metrics if configured.metrics else []
        self._worker_server, self._logs = fork_server(worker), logs
        first = [self._new_worker(place) for place in range(1, workers + 1)]
        first_apis = [self._new_api(place) for place in range(1, apis + 1)]
        self.supervisor = Supervisor(
            [
                *first_apis,
                *first,
                *(self._new_preparer(place) for place in range(1, preparers + 1)),
                _child("keeper", "workers.keeper", keeper, logs),  # nobody waits for it
            ]
        )
        self._worker, self._scaled = worker, dict[str, LocalWorkers[Any]]()  # by pool
        self._followers: dict[str, ScalingFollower] = {}
        self._steps = [Step("the watch of the embedded servers", self.servers.poll)]
        if most_workers:
            self._scaled[worker.pool] = LocalWorkers(
                *(self.supervisor, worker.pool, first, self._new_worker, len(self._each)),
                self._drain_order,
                grace_s(worker),
            )
        if most_apis:
            self._scaled[API_POOL] = LocalWorkers(
                *(self.supervisor, API_POOL, first_apis, self._new_api, self._apis), kind="apis"
            )

    def _drain_order(self, by_place: Mapping[int, WatchedWorker]) -> list[int]:
        if not (follower := self._followers.get(self._worker.pool)):
            return last_first(by_place)
        retiring = self.supervisor.retiring.values()
        leaving = [one.incarnation for one in retiring if isinstance(one, WatchedWorker)]
        return follower.drain_order(by_place, leaving)

    def _new_api(self, place: int) -> Child:
        """Returns the api of a place, from 1 on; it isn't started."""
        name = f"api-{place}" if self._apis > 1 else "api"
        return _child(name, "api", self._each_api[place - 1], self._logs)

    def _new_worker(self, place: int) -> WatchedWorker:
        """Returns the worker of a place, from 1 on; it isn't started."""
        name, its = f"worker-{place}", self._each[place - 1]
        log = self._logs and self._logs / f"{name}.log"
        return WatchedWorker(self._worker_server, name, its, log)

    def _new_preparer(self, place: int) -> Child:
        """Returns a worker that prepares; it isn't started."""
        name, its = f"prepare-{place}", self._preparing[place - 1]
        log = self._logs and self._logs / f"{name}.log"
        return WatchedWorker(fork_server(its), name, its, log)

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
        """Addresses of metrics: those of each api, the keeper, each worker."""
        found = [exposition.url(settings) for settings in self._with_metrics]
        return [f"{self.url}/metrics", *found] if found and self._apis == 1 else found

    def start(self, stop_requested: Callable[[], bool] = lambda: False) -> None:
        """Returns once the api is ready, or a stop is requested.

        Raises EmbeddedError, PortTaken, SettingsError, NotReady; then nothing is left running.
        """
        _check_port(self.settings)
        for settings in self._with_metrics:
            exposition.check_port(settings)
        try:
            _FORK_SERVER.start()
            for server in {self._worker_server, *map(fork_server, self._preparing)}:
                server.start()
            self.servers.launch()
            # Loads SQLAlchemy, while the fork servers import and PostgreSQL starts.
            from ops.supervisor import database_setup

            self.servers.await_ready()
            database_setup.prepare(self.settings, self._workers, self._apis)
            self.supervisor.start()
            self._await_ready(stop_requested)
            self._follow_autoscaler()
        except BaseException:
            self.stop()
            raise

    def _follow_autoscaler(self) -> None:
        if self._scaled:
            from ops.supervisor.scaling import ScalingFollower

            for pool, local in self._scaled.items():
                follower = self._followers[pool] = ScalingFollower(self._worker, pool)
                self._steps.append(Step(f"the scaling of {pool}", partial(follower.act, local)))
                follower.start()

    def _await_ready(self, stop_requested: Callable[[], bool]) -> None:
        def poll() -> bool:
            self.poll()
            return not stop_requested()

        try:
            await_ready(self.settings, poll)
        except NotReady as error:
            raise NotReady("; ".join([error.message, *self.supervisor.unsteady()])) from error

    def poll(self) -> None:
        """Restarts processes that have ended. Raises owner.Failed."""
        for step in self._steps:
            step()
        self.supervisor.poll()

    def run(self, stop_requested: Callable[[], bool]) -> None:
        """Keeps everything running until a stop is requested. Raises owner.Failed."""
        while not stop_requested():
            self.poll()
            self.supervisor.pause(self.servers.processes())

    def stop(self) -> None:
        """Stops everything, after workers have released their slices."""
        with ExitStack() as stops:  # all of them, whatever one raises
            stops.callback(self.servers.stop)
            for follower in self._followers.values():
                follower.request_stop()
                stops.callback(follower.stop)
            stops.callback(self.supervisor.stop, grace_s(self.settings))


def _preparers(configured: Settings, asked: int | None) -> int:
    """Returns the number of workers that prepare."""
    if asked is not None:
        return asked
    return 1 if ModelsFile(configured.models).models.of_pool(PREPARE_POOL) else 0


def _preparing(settings: Settings) -> Settings:
    return settings.evolve(pool=PREPARE_POOL, device="cpu")


def _child(name: str, module: str, configured: Settings, logs: Path | None) -> Child:
    log = logs and logs / f"{name}.log"
    return ForkedChild(_FORK_SERVER, name, module, configured.environment(), log)


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
    """Ports of all processes but an only api: from the configured one, or free ones."""
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
