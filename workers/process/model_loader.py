"""The models that a worker has in memory: a thread that loads and unloads what `residency.py` says.

load → warm → serve, and in the end drain → unload
"""

import gc
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis, RedisError
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock
from jobs.calls.redis import RedisLanes
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.queue import backlog, workers
from jobs.store.queue.workers import ModelRow
from jobs.telemetry.metrics import record
from workers.device.host_table import HostTable
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.engines import registry as engines
from workers.engines.protocol import Engine
from workers.process.residency import Residency, Resident
from workers.process.slice_runner import SliceRunner

_log = logging.getLogger(__name__)
_TICK_S = 0.5
_SOON_S = 0.05  # while somebody comes or goes
_NOBODY = "nobody/0"  # a slot that is never busy
_GONE = (SQLAlchemyError, *CONNECTION_ERRORS)


class ModelLoader:
    """One worker's models. Everything but `stop` and `rows` happens on its thread."""

    def __init__(
        self,
        settings: Settings,
        file: ModelsFile,
        hosts: HostTable,
        slices: SliceRunner,
        database: Database,
        redis: "Redis",
        progress: LaunchDeadline,
    ) -> None:
        self._settings, self._file, self._hosts, self._slices = settings, file, hosts, slices
        self._database, self._redis, self._progress = database, redis, progress
        self._table = Residency(settings.memory_mb, settings.min_stay_s)
        self._told: list[ModelRow] = []
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            self.step()
            soon = self._table.among("loading", "draining")
            self._stopping.wait(_SOON_S if soon else _TICK_S)

    def stop(self) -> None:
        """Nothing comes or goes any more; what is being loaded won't be served."""
        self._stopping.set()

    def step(self) -> None:
        """One look around."""
        self._file.poll()
        now_s = clock.monotonic()
        self._table.declare(now_s, self._file.models.of_pool(self._settings.pool))
        self._observe()
        self._retire_removed(now_s)
        self._unload_drained()
        self._table.reserve(now_s)
        self._invite(now_s)
        self._tell()
        if (resident := self._table.next_load()) and not self._stopping.is_set():
            self._load(resident)
            self._tell()

    def _observe(self) -> None:
        for resident in self._table.among("ready"):
            host = self._hosts.by_key[resident.model.key]
            resident.busy = host.busy()
            resident.used_s = max(resident.used_s, host.used_s)

    # -- in

    def _load(self, resident: Resident) -> None:
        """Loads, warms and serves; a model that can't be loaded harms no other."""
        model, since_s = resident.model, clock.monotonic()
        engine: Engine | None = None
        try:
            with self._progress.within(model.limits.max_load_s):
                engine = engines.load(model, self._settings.device)
                if not self._table.weigh(resident, model.memory_mb or engine.memory_mb()):
                    _log.warning("%s: no room for %g MiB", model.key, resident.memory_mb)
                    _close(engine)
                    return
                resident.becomes("warming")
                self._tell()
                host = self._hosts.make(model, engine, self._slices.record_launch)
                host.warm_up()
        except (Exception, SystemExit) as error:
            _log.exception("%s can't be loaded", model.key)
            record.model_loaded(model.key, "failed", clock.monotonic() - since_s)
            self._table.fail(clock.monotonic(), resident, f"{type(error).__name__}: {error}")
            _close(engine)
            return
        now_s = clock.monotonic()
        resident.load_s = host.load_s = now_s - since_s
        record.model_loaded(model.key, "ready", resident.load_s)
        if self._hosts.enter(host):
            self._table.settle(now_s, resident)
            _log.info("%s is ready after %.1f s", model.key, resident.load_s)

    def _invite(self, now_s: float) -> None:
        """Models that somebody asks for, one at a time, where no other worker has them."""
        if not self._table.settled():
            return
        for resident, leaving in self._table.invite(now_s, self._wanted()):
            if self._is_ours(resident):
                resident.becomes("loading")
                for other in leaving:
                    self._drain(other)
                return

    def _wanted(self) -> set[str]:
        """Those that calls or slices found nowhere."""
        models = [resident.model for resident in self._table.among("absent", "failed")]
        wanted: set[str] = set()
        if models:
            with _away("who is wanted"):
                wanted |= {m.key for m in models if RedisLanes(self._redis, m.key).wanted()}
            with _away("who is wanted"), self._database.begin() as tx:
                found = backlog.claimable(tx, models, 1)
                wanted |= {key for key, count in found.items() if count}
        return wanted

    def _is_ours(self, resident: Resident) -> bool:
        """Told first: the claim is a change of what was told."""
        self._tell()
        with _away("who loads it"), self._database.begin() as tx:
            silent_s = 2 * self._settings.lease_s
            return workers.claim_load(tx, self._hosts.incarnation, resident.model.key, silent_s)
        return False

    # -- out

    def _retire_removed(self, now_s: float) -> None:
        """Versions that are declared no more go when their calls and slices are done."""
        removed = self._table.removed(now_s)
        if not removed:
            return
        with _away("what is left to do"):
            with self._database.begin() as tx:
                unfinished = backlog.unfinished(tx, [resident.model for resident in removed])
            for resident in removed:
                key = resident.model.key
                if key in unfinished or RedisLanes(self._redis, key).look(_NOBODY).lanes:
                    continue
                if resident.state == "ready":
                    self._drain(resident)
                else:
                    self._table.forget(resident)

    def _drain(self, resident: Resident) -> None:
        _log.info("%s leaves", resident.model.key)
        host = self._hosts.by_key[resident.model.key]
        resident.becomes("draining")
        self._slices.retire(host)
        self._hosts.announce(host)

    def _unload_drained(self) -> None:
        for resident in self._table.among("draining"):
            host = self._hosts.by_key[resident.model.key]
            self._hosts.announce(host)
            if not host.busy() and not self._is_needed(resident):
                self._hosts.leave(host)
                _close(host.engine)
                self._table.left(resident)

    def _is_needed(self, resident: Resident) -> bool:
        """Whether calls wait that no other worker would take. The last of several that drain sees
        that it is: each has said before that it isn't ready."""
        with _away("whether calls wait"):
            look = RedisLanes(self._redis, resident.model.key).look(_NOBODY)
            return bool(look.lanes) and look.replicas == 0
        return True

    # -- what everybody may know

    def rows(self) -> list[ModelRow]:
        """Where every model stands; for any thread."""
        return [_row(resident) for resident in list(self._table)]

    def _tell(self) -> None:
        """Writes the table down, if it has changed; later, where the database is away."""
        if self._table.settled():
            self._slices.loaded()
        rows = self.rows()
        if rows == self._told or self._stopping.is_set():
            return  # a worker that leaves says so itself
        with _away("where models stand"):
            with self._database.begin() as tx:
                workers.heartbeat(tx, self._hosts.incarnation, self._slices.state)
                workers.report_models(tx, self._hosts.incarnation, rows)
                if any(row.state == "ready" for row in rows):
                    db.notify_work(tx)
            self._told = rows


@contextmanager
def _away(what: str) -> Iterator[None]:
    """Without the database or Redis things stay as they are for now."""
    try:
        yield
    except (RedisError, *_GONE) as error:
        _log.warning("can't tell %s: %s", what, error)


def _row(resident: Resident) -> ModelRow:
    load_ms = resident.load_s * 1000
    return ModelRow(resident.model.key, resident.state, resident.memory_mb, load_ms, resident.error)


def _close(engine: Engine | None) -> None:
    """So that its memory is free for the next one."""
    try:
        if engine is not None:
            engine.close()
    except Exception:
        _log.exception("an engine didn't close")
    gc.collect()
