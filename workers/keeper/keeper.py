"""Everything periodic, as services of one shape. Several keepers may run: rows are locked with
SKIP LOCKED or taken once, so that PostgreSQL decides who does what."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from redis import RedisError
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock, ids
from jobs.calls import redis as call_redis
from jobs.errors import BlobsAway, NotFound
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db, partitions
from jobs.store.billing import spend
from jobs.store.db import Tx
from jobs.store.jobs import idempotency, verbs
from jobs.store.monitoring import gauges as store_census
from jobs.store.queue import finish, reap, workers
from jobs.store.webhooks import endpoints
from jobs.telemetry.metrics import exposition, metrics, record
from jobs.telemetry.reports import history, reader
from jobs.telemetry.reports.reporter import Reporter
from jobs.telemetry.tracing import export, spans
from workers import broker
from workers.crash import end_process
from workers.keeper import cleanup
from workers.keeper import gauges as census
from workers.keeper.call_billing import CallBilling
from workers.keeper.call_recovery import CallRecovery
from workers.keeper.gauges import GaugeCollector
from workers.keeper.latency_probe import LatencyProbe
from workers.keeper.nudger import Nudger
from workers.transfers.supervisor import PROCESSES, TransferSupervisor
from workers.webhooks.sender import WebhookSender

_log = logging.getLogger(__name__)
_REDIS_S = 2.0  # for a command of what may wait
_MODELS_S = 1.0  # the models file is looked at so often
_BILL_S = 5.0  # minutes of calls that are over are looked for so often
_CALM_S = 0.01  # submissions that come closer together than this share one look


@dataclass(frozen=True, slots=True)
class Service:
    """One periodic duty. run_once: in a transaction of its own, repeated until it returns 0; tell:
    is told what each of those that did something returned."""

    name: str
    every_s: float
    run_once: Callable[[Tx], int]
    tell: Callable[[int], None] = lambda done: None


def services(settings: Settings) -> list[Service]:
    silent_s = 2 * settings.lease_s
    keys_s = 3600 * settings.idempotency_hours
    return [
        Service(
            "reap",
            settings.keeper_interval_s,
            lambda tx: reap.reap(tx, settings.lease_s),
            record.reaped,
        ),
        Service("cancel", settings.keeper_interval_s, _cancel),
        Service("expire", settings.keeper_interval_s, _expire),
        Service("sweep", 30.0, finish.close_missed),
        Service(
            "lose workers",
            5.0,
            lambda tx: workers.mark_lost(tx, silent_s),
            partial(record.worker_died, "silent"),
        ),
        Service("forget keys", 60.0, lambda tx: idempotency.delete_old(tx, keys_s)),
        Service("forget endpoints", 3600.0, endpoints.delete_stale),
        Service("sum up spend", 1.0, spend.compact),
        Service("tell of spend", 5.0, spend.notify),
        Service("partitions", 3600.0, lambda tx: len(partitions.ensure(tx, clock.now()))),
        *(Service(name, every_s, duty) for name, every_s, duty in cleanup.duties(settings)),
    ]


def _cancel(tx: Tx) -> int:
    """What a cancel left to do: the api does it itself, for as long as its client waits."""
    found = verbs.unended_cancelled(tx)
    with suppress(NotFound):  # ended by somebody else, and deleted by its tenant
        return verbs.end_cancelled(tx, found[0]) if found else 0
    return 1


def _expire(tx: Tx) -> int:
    """One job a transaction: locks are taken slices first, then the job."""
    due = verbs.expired(tx)
    with suppress(NotFound):
        if due:
            verbs.expire(tx, due[0])
    return len(due)


class Keeper:
    """Runs the services until told to stop; woken early by NOTIFY."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models = ModelsFile(settings.models)
        self._nudger = Nudger(settings, self._models)
        self._calls = CallRecovery(settings.redis_url, self._models)
        self._webhooks = WebhookSender(settings)
        self._services = services(settings)
        connections = len(self._services) + 4 + PROCESSES
        self._database: Database = db.connect(
            settings.database_url, pool_size=connections, role=db.WORKER
        )
        self._meter = CallBilling(settings.redis_url, self._database, self._models)
        self._redis = call_redis.connect(settings.redis_url, timeout_s=_REDIS_S)
        self._census = GaugeCollector(settings, self._redis, self._models)
        self._probes = (
            LatencyProbe("database", partial(_write_to, self._database)),
            LatencyProbe("redis", call_redis.connect(settings.redis_url, timeout_s=_REDIS_S).ping),
        )
        self._stopping = threading.Event()
        self._couriers = [
            TransferSupervisor(settings, self._database, self._stopping) for _ in range(PROCESSES)
        ]

    def stop(self) -> None:
        self._stopping.set()

    def _about(self) -> dict[str, Any]:
        db.record_connections()
        with suppress(RedisError):  # it has lost them all, perhaps
            reader.tidy(self._redis)
        return {"host": socket.gethostname(), "pid": os.getpid()}

    def run(self) -> None:
        """A thread a service: a slow one delays nobody."""
        threads = [
            threading.Thread(target=self._keep, args=(service,), name=service.name, daemon=True)
            for service in self._services
        ]
        threads += [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (
                ("nudge", self._nudge),
                ("recover calls", self._recover),
                ("bill calls", self._bill),
                ("webhooks", lambda: self._webhooks.run(self._stopping)),
                *((f"transfers {n}", courier.run) for n, courier in enumerate(self._couriers)),
            )
        ]
        name = ids.show("keeper", ids.new())
        window_s = self._settings.metrics_window_s
        reporter = Reporter(self._redis, name, "keeper", self._about, window_s)
        if self._settings.metrics:
            reporter.start()
            threads += self._watchers()
        for thread in threads:
            thread.start()
        while not self._stopping.wait(_MODELS_S):
            self._models.poll()
        for thread in threads:
            thread.join()
        reporter.stop()
        self._redis.close()
        self._database.dispose()

    def _watchers(self) -> list[threading.Thread]:
        """Threads that see how everything stands."""
        gauges = metrics.DATABASE_PROBE_S, metrics.REDIS_PROBE_S
        for gauge, probe in zip(gauges, self._probes, strict=True):
            gauge.set_function(probe.seconds)
        return [
            threading.Thread(target=self._count, name="census", daemon=True),
            threading.Thread(target=self._remember, name="history", daemon=True),
            *(
                threading.Thread(target=probe.run, args=(self._stopping,), daemon=True)
                for probe in self._probes
            ),
        ]

    def _count(self) -> None:
        """The database is asked for a hundredth of its time, unless a look takes very long."""
        while not self._stopping.is_set():
            since_s = clock.monotonic()
            try:
                with record.duty("census"):
                    self._census.run_once(self._database)
            except (SQLAlchemyError, psycopg.Error) as error:
                _log.warning("census: %s", error)
            took_s = clock.monotonic() - since_s
            self._stopping.wait(census.rest_s(took_s))

    def _keep(self, service: Service) -> None:
        while not self._stopping.is_set():
            # Where the database was away nobody could renew a lease: everybody may, first.
            pause_s = service.every_s if self._run(service) else self._settings.lease_s
            since_s = clock.monotonic()
            self._stopping.wait(pause_s)
            if clock.monotonic() - since_s > pause_s + self._settings.lease_s:
                self._stopping.wait(self._settings.lease_s)  # we were stopped, perhaps all were

    def _run(self, service: Service) -> bool:
        """Whether the database was there."""
        try:
            while not self._stopping.is_set():
                with record.duty(service.name):
                    self._let_others_first()
                    with self._database.begin() as tx:
                        done = service.run_once(tx)
                if not done:
                    break
                service.tell(done)
                _log.info("%s: %d", service.name, done)
        except (SQLAlchemyError, psycopg.Error, BlobsAway) as error:
            _log.warning("%s: %s", service.name, error)
            return False
        return True

    def _let_others_first(self) -> None:
        """Where the database stood still nobody could renew a lease: they may, before we judge."""
        since_s, lease_s = clock.monotonic(), self._settings.lease_s
        self._database.connect().close()  # which asks whether it is there
        if clock.monotonic() - since_s > lease_s / 3:
            self._stopping.wait(lease_s)

    def _nudge(self) -> None:
        """Listens for new work on a connection of its own; looks around in any case."""
        while not self._stopping.is_set():
            try:
                self._listen()
            except (psycopg.Error, SQLAlchemyError, *broker.AWAY) as error:
                _log.warning("nudging: %s", error)
                self._stopping.wait(self._settings.keeper_interval_s)

    def _recover(self) -> None:
        """On a thread of its own: calls need no database, and wait for none."""
        while not self._stopping.is_set():
            try:
                with record.duty("recover calls"):
                    record.calls_recovered(self._calls.run_once())
            except RedisError as error:
                _log.warning("recovering calls: %s", error)
            self._stopping.wait(self._settings.keeper_interval_s)

    def _bill(self) -> None:
        while not self._stopping.is_set():
            try:
                with record.duty("bill calls"):
                    self._meter.run_once()
            except (RedisError, SQLAlchemyError, psycopg.Error) as error:
                _log.warning("billing calls: %s", error)
            self._stopping.wait(_BILL_S)

    def _remember(self) -> None:
        """How it goes, for those who look later."""
        while not self._stopping.wait(history.EVERY_S):
            try:
                history.write(self._redis, reader.read(self._redis))
            except RedisError as error:
                _log.warning("history: %s", error)

    def _listen(self) -> None:
        url = db.plain_url(self._settings.database_url)
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as heard:
            heard.execute(f"LISTEN {db.WORK_CHANNEL}")
            heard.execute(f"LISTEN {db.TRANSFERS_CHANNEL}")
            while not self._stopping.is_set():
                with record.duty("nudge"), self._database.begin() as tx:
                    self._nudger.run_once(tx)
                self._stopping.wait(_CALM_S)
                wait_s = self._settings.keeper_interval_s
                told = list(heard.notifies(timeout=wait_s, stop_after=1))
                told += heard.notifies(timeout=0)  # the rest of the crowd
                if any(one.channel == db.TRANSFERS_CHANNEL for one in told):
                    for courier in self._couriers:
                        courier.notify()


def _write_to(database: Database) -> None:
    with database.begin() as tx:
        store_census.write(tx)
        metrics.LOCK_WAIT_S.set(store_census.longest_lock_s(tx))


def run_keeper(settings: Settings) -> None:
    """Keeps until SIGTERM or SIGINT."""
    threading.excepthook = end_process
    record.begin("keeper", settings.metrics)
    exposition.listen(settings)
    export.start(settings, "keeper")
    keeper = Keeper(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: keeper.stop())
    keeper.run()
    spans.stop()
