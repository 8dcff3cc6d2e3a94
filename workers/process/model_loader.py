"""Loader of a worker's models: a thread that loads and unloads as `Residency` decides.

verify → stage → load → warm up → probe → serve, and in the end drain → unload

The first two are for versions with an artifact, the probe for those with known answers; engines
that compile do so as they load. A version
that fails any step is never announced, so that nothing is routed to it here.
"""

import gc
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf

from redis import Redis, RedisError
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock
from jobs.artifacts import progress
from jobs.calls.redis import RedisLanes
from jobs.models.engines.extras import MissingExtra
from jobs.models.model import Model, PreparationModel
from jobs.models.watcher import ModelsFile
from jobs.processes.memory import collect_and_freeze
from jobs.settings import Settings
from jobs.store import db
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.queue import backlog, workers
from jobs.store.queue.workers import LOADING_STATES, ModelRow
from jobs.telemetry.metrics import record
from workers.device import probe
from workers.device.host import Host
from workers.device.monitoring.device_info import device_name
from workers.device.monitoring.watchdog import LaunchDeadline
from workers.device.warmup import limits as launch_limits
from workers.device.warmup.measure import Measured
from workers.engines import registry as engines
from workers.engines.common.device_errors import device_failure
from workers.engines.generator import Generator
from workers.engines.protocol import Engine
from workers.generation.host import GenerationHost
from workers.preparation.engine import PreparationEngine
from workers.process.artifacts.adapters import StagedAdapters
from workers.process.artifacts.staging import Stager
from workers.process.host_table import HostTable
from workers.process.launch_times import LaunchTimes
from workers.process.residency import Residency, Resident, RolledBack
from workers.process.slice_runner import SliceRunner

_log = logging.getLogger(__name__)
_TICK_S = 0.5
_ON_DEMAND_S = 2.0  # between looks for requests where only models on demand may have some
_BUSY_TICK_S = 0.05  # while a model is loaded or drained
_NO_SLOT = "nobody/0"  # looks at the lanes, and is never busy
_ERRORS = (RedisError, SQLAlchemyError, *CONNECTION_ERRORS)


class ModelLoader:
    """Loads, serves and unloads the models of one worker. Everything but `stop` and `rows` happens
    on the thread of `run`."""

    def __init__(
        self,
        settings: Settings,
        file: ModelsFile,
        hosts: HostTable,
        slices: SliceRunner,
        database: Database,
        redis: "Redis",
        deadline: LaunchDeadline,
    ) -> None:
        self._settings, self._file, self._hosts, self._slices = settings, file, hosts, slices
        self._stopping = threading.Event()
        self._database, self._redis, self._deadline = database, redis, deadline
        self._stager = Stager(settings, database)
        self._adapters = StagedAdapters(self._stager, self._stopping.is_set)
        self._launch_times = LaunchTimes(settings.home, device_name(settings))
        history = deadline.load_history()
        self._table = Residency(
            settings.memory_mb,
            settings.min_stay_s,
            set(history.late),
            dict(history.left_out),
            history.held,
        )
        self._rolled_back = RolledBack()
        self._published: list[ModelRow] = []
        self._looked_s = -inf  # latest look for requests

    def run(self) -> None:
        """Takes steps until `stop`."""
        collect_and_freeze()  # what the process has imported
        while not self._stopping.is_set():
            if self.step():
                continue
            busy = self._table.in_state(*LOADING_STATES, "draining")
            self._stopping.wait(_BUSY_TICK_S if busy else _TICK_S)

    def stop(self) -> None:
        """Loads and unloads nothing more; a model that is being loaded won't be served."""
        self._stopping.set()

    def step(self) -> bool:
        """Compares the models file, requests and memory; returns True if it loaded a model: there
        may be another."""
        self._file.poll()
        self._hosts.declare(self._file.models)
        now_s = clock.monotonic()
        self._table.declare(now_s, self._file.models.of_pool(self._settings.pool))
        self._table.kept_warm = self._file.registered.kept_warm
        self._take_adapters()
        self._observe()
        self._unload_unneeded(now_s)
        self._unload_drained()
        self._table.reserve(now_s)
        self._load_requested(now_s)
        self._publish()
        if not (resident := self._table.next_load()) or self._stopping.is_set():
            return False
        self._load(resident)
        self._publish()
        return resident.state == "ready"

    def _observe(self) -> None:
        for resident in self._table.in_state("ready"):
            host = self._hosts.by_key[resident.model.key]
            resident.busy = host.capacity.has_claims()
            resident.used_s = max(resident.used_s, host.used_s)

    def _take_adapters(self) -> None:
        """Takes adapters that came since their base was loaded."""
        for key in list(self._hosts.by_key):
            staged = self._adapters.stage(self._file.models.adapters_of(key).values())
            self._hosts.add_adapters(key, staged)

    # -- load

    def _load(self, resident: Resident) -> None:
        """Stages, loads and serves a model. A failure is its state, and harms no other."""
        model, since_s = resident.model, clock.monotonic()
        self.announce_loading()
        engine: Engine | Generator | None = None
        gc.disable()  # until it is loaded: libraries import thousands of objects, which stay
        try:
            staged = self._with_adapters(self._staged(resident))
            with self._deadline.loading(model.key, model.limits.max_load_s) as begin_anew:
                with progress.reported_to(begin_anew):  # what is fetched, or converted
                    engine = self._engine_of(staged)
                if not self._table.measure(resident, model.memory_mb or engine.memory_mb()):
                    _log.warning("%s: no room for %g MiB", model.key, resident.memory_mb)
                    self._close(engine, model)
                    return
                resident.change_state("warming")
                self._publish()
                known = self._launch_times.read(model)
                host, measured = self._warmed_up(staged, engine, known)
                if measured is not known:
                    self._launch_times.write(model, measured)
                probe.check(model, engine)
                collect_and_freeze()
        except (Exception, SystemExit) as error:
            trace = not isinstance(error, MissingExtra)  # which says all that there is to say
            _log.error("%s can't be loaded: %s", model.key, error, exc_info=trace)
            record.model_loaded(model.key, "failed", clock.monotonic() - since_s)
            self._table.mark_failed(clock.monotonic(), resident, f"{type(error).__name__}: {error}")
            if failure := device_failure(error):
                self._hosts.health.report(failure)  # this worker is taken out of service
            self._close(engine, model)
            return
        now_s = clock.monotonic()
        resident.load_s = host.load_s = now_s - since_s
        record.model_loaded(model.key, "ready", resident.load_s)
        if self._hosts.add(host):
            self._table.mark_ready(now_s, resident)
            _log.info("%s is ready after %.1f s", model.key, resident.load_s)

    def _warmed_up(
        self, staged: Model, engine: Engine | Generator, known: Measured
    ) -> tuple[Host, Measured]:
        """Returns the host of a loaded model, and its measured launches; known: those of an earlier
        load."""
        sweep = Measured()
        if not isinstance(engine, Generator):
            staged, sweep = launch_limits.measure_limits(staged, engine, known)
        host = self._hosts.create(staged, engine, self._slices.settlement.record_launch)
        measured = host.warm_up(sweep or known)
        return host, sweep or measured

    def _engine_of(self, staged: Model) -> Engine | Generator:
        if isinstance(staged, PreparationModel):
            return PreparationEngine(staged)
        return engines.load(staged, self._settings.device)

    def _staged(self, resident: Resident) -> Model:
        """Returns a version with its files in the cache, once they are verified."""
        model = resident.model
        if resident.state != "verifying":
            return model
        trusted = self._stager.verify(model.artifact)
        resident.change_state("staging")
        self._publish()
        staged = self._stager.stage(model, trusted, self._stopping.is_set)
        resident.change_state("loading")
        self._publish()
        return staged

    def _with_adapters(self, model: Model) -> Model:
        """Returns a version with those of its adapters staged whose files lie in artifacts."""
        staged = self._adapters.stage(self._file.models.adapters_of(model.key).values())
        adapters = tuple(staged.get(one.name, one) for one in model.adapters)
        return replace(model, adapters=adapters)

    def _load_requested(self, now_s: float) -> None:
        """Makes room for a requested model that no other worker has, or too few for its load, one
        at a time."""
        if not self._table.settled():
            return
        asked, more = self._requested(), self._hosts.take_replicas()
        for resident, evicted in self._table.requested_loads(now_s, asked, more):
            if self._claim_load(resident, more.get(resident.model.key, 1)):
                resident.reserve()
                for other in evicted:
                    self._drain(other)
                return

    def _requested(self) -> set[str]:
        """Returns the models here not loaded for which calls or slices found no worker."""
        models = [resident.model for resident in self._table.in_state("absent", "failed")]
        requested: set[str] = set()
        if models and self._looks_for_requests(models):
            with _logging_errors("requested models"):
                requested |= {m.key for m in models if RedisLanes(self._redis, m.key).wanted()}
            with _logging_errors("requested models"), self._database.begin() as tx:
                named = self._file.models.with_adapters(models)
                claimable = backlog.claimable(tx, named, 1)
                requested |= {one.served_by.key for one in named if claimable.get(one.key)}
        return requested

    def _looks_for_requests(self, models: Sequence[Model]) -> bool:
        """Returns True if it is time: models on demand are looked for less often, since a platform
        that nobody asks for them has them absent for good."""
        now_s = clock.monotonic()
        on_demand = all(model.on_demand for model in models)
        if on_demand and now_s < self._looked_s + _ON_DEMAND_S:
            return False
        self._looked_s = now_s
        return True

    def _claim_load(self, resident: Resident, most: int) -> bool:
        """Returns True if this worker, whose states are published, is to load a model, which `most`
        workers may have."""
        self._publish()
        with _logging_errors("who loads a model"), self._database.begin() as tx:
            silent_s = 2 * self._settings.lease_s
            key, own = resident.model.key, self._hosts.incarnation
            return workers.claim_load(tx, own, key, silent_s, most=most)
        return False

    # -- unload

    def _unload_unneeded(self, now_s: float) -> None:
        """Drains removed versions, and canaries that were rolled back, once no slice and no call of
        theirs is left."""
        file, removed = self._file, self._table.removed(now_s)
        removed += self._rolled_back.unneeded(now_s, file.registered, file.models, self._table)
        if not removed:
            return
        with _logging_errors("unfinished work"):
            with self._database.begin() as tx:
                served = [host.model for host in list(self._hosts.claiming.values())]
                named = {m.key: m for m in (*served, *(resident.model for resident in removed))}
                found = backlog.unfinished(tx, named.values())
                unfinished = {named[key].served_by.key for key in found}
            for resident in removed:
                key = resident.model.key
                if key in unfinished or RedisLanes(self._redis, key).look(_NO_SLOT).lanes:
                    continue
                if resident.state == "ready":
                    self._drain(resident)
                else:
                    self._table.remove(resident)

    def _drain(self, resident: Resident) -> None:
        _log.info("%s drains", resident.model.key)
        host = self._hosts.by_key[resident.model.key]
        resident.change_state("draining")
        self._slices.retire(host)
        self._hosts.announce(host)

    def _unload_drained(self) -> None:
        for resident in self._table.in_state("draining"):
            host = self._hosts.by_key[resident.model.key]
            self._hosts.announce(host)
            if not host.capacity.has_claims() and not self._is_needed(resident):
                self._hosts.remove(host)
                self._close(host.engine, resident.model)
                self._table.mark_unloaded(resident)

    def _is_needed(self, resident: Resident) -> bool:
        """Returns True while calls wait that no other worker takes. Of several workers that drain,
        the last sees that it is: each has announced before that it isn't ready."""
        with _logging_errors("waiting calls"):
            look = RedisLanes(self._redis, resident.model.key).look(_NO_SLOT)
            return bool(look.lanes) and look.replicas == 0
        return False  # without Redis no call comes, and the model that has slices waits for room

    def _close(self, engine: Engine | Generator | None, model: Model) -> None:
        """Closes an engine, and frees its memory and its files for the next one."""
        try:
            if engine is not None:
                engine.close()
        except Exception:
            _log.exception("an engine didn't close")
        self._stager.release(model)
        self._adapters.forget(model.key)
        gc.unfreeze()
        collect_and_freeze()

    # -- state

    def hold(self) -> None:
        """Has the next incarnation of this worker load first what this one has in memory, or is
        loading; for any thread."""
        held = [r for r in list(self._table) if r.state in (*LOADING_STATES, "ready")]
        self._deadline.hold(resident.model.key for resident in held)

    def announce_loading(self) -> None:
        """Tells api processes for another lease which models are loaded here, or have an engine
        that starts again: their streams wait. For any thread."""
        loading = [one.model.key for one in list(self._table) if one.state in LOADING_STATES]
        hosts = list(self._hosts.by_key.values())
        generating = [host for host in hosts if isinstance(host, GenerationHost)]
        loading += [host.model.key for host in generating if host.restarts.running]
        with _logging_errors("models that are loaded"):
            for key in loading:
                RedisLanes(self._redis, key).announce_loading(self._settings.lease_s)

    def rows(self) -> list[ModelRow]:
        """Returns the state of every model, and of adapters that failed; for any thread."""
        return [*map(_row, list(self._table)), *self._adapters.rows()]

    def _forget_held(self) -> None:
        if self._table.held:
            self._table.held = ()
            self._deadline.forget_held()

    def _publish(self) -> None:
        """Writes changed states of models to the database, or later if it is away."""
        settled = self._table.settled()
        self._slices.set_loading(loading=not settled)
        if settled:
            self._slices.mark_loaded()
            self._forget_held()
        rows = self.rows()
        if rows == self._published or self._stopping.is_set():
            return  # `Runtime.stop` writes the last state
        with _logging_errors("states of models"):
            with self._database.begin() as tx:
                workers.heartbeat(tx, self._hosts.incarnation, self._slices.state)
                workers.report_models(tx, self._hosts.incarnation, rows)
                if any(row.state == "ready" for row in rows):
                    db.notify_work(tx)
            self._published = rows


@contextmanager
def _logging_errors(subject: str) -> Iterator[None]:
    """Logs errors of the database and Redis: things stay as they are for now."""
    try:
        yield
    except _ERRORS as error:
        _log.warning("can't read or write %s: %s", subject, error)


def _row(resident: Resident) -> ModelRow:
    load_ms = resident.load_s * 1000
    return ModelRow(resident.model.key, resident.state, resident.memory_mb, load_ms, resident.error)
