"""Keeper process: all periodic work, as services of one shape.

Several keepers may run: rows are locked with SKIP LOCKED or taken once, so that PostgreSQL decides
which keeper does what.
"""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from redis import RedisError
from sqlalchemy import Engine as Database

from jobs import clock, ids
from jobs.calls import redis as call_redis
from jobs.errors import NotFound
from jobs.models.watcher import ModelsFile
from jobs.processes.memory import collect_and_freeze
from jobs.settings import Settings
from jobs.store import db, partitions
from jobs.store.billing import spend
from jobs.store.db import Tx
from jobs.store.jobs import idempotency, verbs
from jobs.store.monitoring import due
from jobs.store.monitoring import gauges as gauge_queries
from jobs.store.queue import finish, reap
from jobs.store.queue.clock_watch import ClockWatch
from jobs.store.registry import snapshot
from jobs.store.registry.follower import RegistryFollower
from jobs.store.scaling import reclaims
from jobs.store.tenants import ended_sessions
from jobs.store.webhooks import endpoints
from jobs.telemetry.metrics import exposition, metrics, record
from jobs.telemetry.reports import history, reader
from jobs.telemetry.reports.reporter import Reporter
from jobs.telemetry.tracing import export, spans
from workers.crash import end_process
from workers.keeper import cleanup
from workers.keeper.call_billing import CallBilling
from workers.keeper.call_recovery import CallRecovery
from workers.keeper.due_watcher import UNWATCHED, DueWatcher
from workers.keeper.monitoring.gauges import GaugeCollector
from workers.keeper.monitoring.history_writer import HistoryWriter
from workers.keeper.monitoring.latency_probe import LatencyProbe
from workers.keeper.nudger import Nudger
from workers.keeper.rerouting import Rerouting
from workers.keeper.rollouts.controller import RolloutController
from workers.keeper.scaling.controller import PoolController
from workers.keeper.service import DatabaseService, Duty, Periodic, run_service
from workers.service import Service
from workers.transfers.supervisor import PROCESSES, TransferPool, TransferSupervisor
from workers.webhooks.sender import WebhookSender

_REDIS_S = 2.0  # for a command that isn't urgent
_SILENT_EVERY_S = 5.0  # between two looks for silent workers
_MODELS_S = 1.0  # between two looks at the models file
_REMOVE_S = 60.0  # between two removals of reports whose process ended uncleanly


def duties(settings: Settings, leases: ClockWatch | None = None) -> list[Duty]:
    """Lists the keeper's work in the database. leases: watch by which leases end."""
    often_s, lease_s, silent_s = settings.keeper_interval_s, settings.lease_s, 2 * settings.lease_s
    keys_s = 3600 * settings.idempotency_hours
    worker_died = partial(record.worker_died, "silent")
    watch, watch_silent = leases or lease_watch(settings), ClockWatch(lease_s, _SILENT_EVERY_S)
    return [
        Duty("reap", often_s, lambda tx: reap.reap(tx, lease_s, watch), record.reaped),
        Duty("cancel", often_s, _cancel),
        Duty("expire", often_s, _expire),
        Duty("sweep", 30.0, finish.MissedJobs().close),
        Duty(
            "lose workers",
            _SILENT_EVERY_S,
            lambda tx: reclaims.lose_silent(tx, silent_s) if watch_silent.is_steady(tx) else 0,
            worker_died,
        ),
        Duty("forget keys", 60.0, lambda tx: idempotency.delete_old(tx, keys_s)),
        Duty("forget sessions", 3600.0, ended_sessions.delete_old),
        Duty("forget endpoints", 3600.0, endpoints.delete_stale),
        Duty("sum up spend", 5.0, spend.compact),
        Duty("tell of spend", 5.0, spend.notify),
        Duty("partitions", 3600.0, lambda tx: len(partitions.ensure(tx, db.now(tx)))),
        *cleanup.duties(settings),
    ]


def lease_watch(settings: Settings) -> ClockWatch:
    """Returns a watch for leases, which is to look at the clock once in `keeper_interval_s`."""
    return ClockWatch(settings.lease_s, settings.keeper_interval_s)


def _cancel(tx: Tx) -> int:
    """Ends a job whose cancellation outlasted its request; the api does it until then."""
    cancelled = verbs.unended_cancelled(tx)
    with suppress(NotFound):  # ended by another process, and deleted by its tenant
        return verbs.end_cancelled(tx, cancelled[0]) if cancelled else 0
    return 1


def _expire(tx: Tx) -> int:
    """Expires one job: locks are taken slices first, then the job."""
    due = verbs.expired(tx)
    with suppress(NotFound):
        if due:
            verbs.expire(tx, due[0])
    return len(due)


def _rarely(duty: Duty) -> Duty:
    return replace(duty, interval_s=UNWATCHED * duty.interval_s)


class Keeper:
    """Runs every service on its own thread: a slow one delays no other."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = threading.Event()
        self._closing = ExitStack()
        self._remove_s = 0.0  # monotonic
        leases = lease_watch(settings)
        table = [
            _rarely(duty) if duty.name in due.NAMES else duty for duty in duties(settings, leases)
        ]
        # Besides the duties: nudges, billing, rollouts, rerouting, pools, gauges, figures, the
        # probe, the registry, and each transfer.
        connections = len(table) + 9 + PROCESSES
        self.database: Database = db.connect(
            settings.database_url, pool_size=connections, role=db.WORKER
        )
        self._closing.callback(self.database.dispose)
        self._redis = call_redis.connect(settings.redis_url, timeout_s=_REDIS_S)
        self._closing.callback(self._redis.close)
        self.services = list(self._services(table, leases))

    def _services(self, table: list[Duty], leases: ClockWatch) -> Iterator[Service]:
        settings, database, stopping = self._settings, self.database, self._stopping
        models = ModelsFile(settings.models)
        rerouting = Rerouting(models, database)
        self._registry = RegistryFollower(
            database, settings.database_url, rerouting.adopt, snapshot.read_with_unfinished
        )
        pool = TransferPool(settings)
        transfers = [
            TransferSupervisor(f"transfers {n}", settings, database, pool, stopping)
            for n in range(PROCESSES)
        ]
        nudger = Nudger(settings, models, database, [each.wake for each in transfers])
        webhooks = WebhookSender(settings)
        rollouts = self._rollouts = RolloutController(settings, database)
        pools = PoolController(settings, self._redis, models, database)
        in_database = [DatabaseService(duty, database, settings.lease_s) for duty in table]
        by_kind: dict[str, list[Service]] = {service.name: [service] for service in in_database}
        by_kind |= {"transfers": [*transfers], "webhooks": [webhooks]}
        watcher = DueWatcher(settings, {kind: by_kind[kind] for kind in due.NAMES}, leases)
        for close in (
            pool.close,
            nudger.close,
            webhooks.close,
            watcher.close,
            rollouts.close,
            pools.close,
        ):
            self._closing.callback(close)
        for service in (webhooks, *transfers):
            service.interval_s *= UNWATCHED
        yield Periodic("models", _MODELS_S, models.poll)
        yield from in_database
        yield watcher
        yield nudger
        yield CallRecovery(settings, models)
        yield CallBilling(settings.redis_url, database, models)
        yield rollouts
        yield rerouting
        yield pools
        yield webhooks
        yield from transfers
        if settings.metrics:
            yield GaugeCollector(settings, self._redis, models, database)
            yield Periodic("history", history.INTERVAL_S, self._write_history)
            yield HistoryWriter(self._redis, database)
            yield LatencyProbe("database", partial(_write_to, database), metrics.DATABASE_PROBE_S)
            ping = call_redis.connect(settings.redis_url, timeout_s=_REDIS_S).ping
            yield LatencyProbe("redis", ping, metrics.REDIS_PROBE_S)

    def stop(self) -> None:
        """Makes `run` return, once what is in hand has ended or was given back."""
        self._stopping.set()

    def run(self) -> None:
        """Runs the services until `stop` is called."""
        name = ids.show("keeper", ids.new())
        window_s = self._settings.metrics_window_s
        reporter = Reporter(self._redis, name, "keeper", self._about, window_s)
        threads = [
            threading.Thread(
                target=run_service, args=(each, self._stopping), name=each.name, daemon=True
            )
            for each in self.services
        ]
        with self._closing:
            if self._settings.metrics:
                reporter.start()
            self._registry.start()
            collect_and_freeze()
            for thread in threads:
                thread.start()
            self._stopping.wait()
            self._registry.stop()
            for each in self.services:
                each.wake.set()
            for thread in threads:
                thread.join()
            reporter.stop()

    def _about(self) -> dict[str, Any]:
        db.record_connections()
        if clock.monotonic() >= self._remove_s:
            self._remove_s = clock.monotonic() + _REMOVE_S
            with suppress(RedisError):  # Redis may have lost the reports
                reader.remove_stale(self._redis)
        about = {"host": socket.gethostname(), "pid": os.getpid()}
        return {**about, "rollouts": self._rollouts.latest}

    def _write_history(self) -> None:
        history.write(self._redis, reader.read(self._redis))


def _write_to(database: Database) -> None:
    with database.begin() as tx:
        gauge_queries.write(tx)
        metrics.LOCK_WAIT_S.set(gauge_queries.longest_lock_s(tx))


def run_keeper(settings: Settings) -> None:
    """Runs a keeper until SIGTERM or SIGINT. Raises SettingsError where a pooler loses sessions of
    the database."""
    db.check_sessions(settings.database_url)
    threading.excepthook = end_process
    record.start("keeper", settings.metrics)
    exposition.serve(settings)
    export.start(settings, "keeper")
    keeper = Keeper(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: keeper.stop())
    keeper.run()
    spans.stop()
