"""Worker process under supervision: ends it when it hangs or grows, and reports its death.

The cause of death decides about its slices (jobs/store/queue/reap.py). After a crash, a hang or a
kill by the out-of-memory killer, the items that it ran are suspect; after a kill from outside none
is. A device that failed too often in a row is quarantined: its worker isn't started again until an
operator resumes it.
"""

import functools
import logging
import threading
from collections.abc import Collection
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from jobs import clock
from jobs.models.model import Model, PreparationModel
from jobs.models.watcher import ModelsFile
from jobs.processes import shared_fork_server
from jobs.processes.memory import resident_mb
from jobs.processes.stopped import ended_from_outside, is_stopped
from jobs.settings import Settings
from ops.processes import owner
from ops.processes.forking import ForkedChild, ForkServer
from ops.supervisor.device_failures import DeviceFailures, device_failed
from ops.supervisor.load_deaths import LoadDeaths
from workers.device.monitoring import watchdog
from workers.engines import registry

if TYPE_CHECKING:  # worker_reports loads them
    from sqlalchemy import Engine as Database

    from jobs.store.queue.workers import Death

_REPORT_FOR_S = 60.0
KILL_AFTER_DRAIN_S = 10.0
"""Time after `drain_s` at which a worker that still runs is killed: it was to end by itself."""
_OVERDUE_LOOKS, _OVERDUE_POLL_S = 5, 0.1  # in a row, and between two of them
_RECLAIMED_FOR_S = 120.0  # after a notice, and its time; then the machine wasn't reclaimed

_log = logging.getLogger("millrace.processes")


def grace_s(settings: Settings) -> float:
    """Returns the time from SIGTERM until a worker is killed, s."""
    return settings.drain_s + KILL_AFTER_DRAIN_S


@functools.cache
def _fork_server(*modules: str) -> ForkServer:
    """Server for all workers of this process that need these modules: tests start many."""
    return ForkServer(*modules)


def fork_server(settings: Settings) -> ForkServer:
    """Returns the server of workers: it imports torch where a declared model needs it."""
    models = ModelsFile(settings.models).models.of_pool(settings.pool)
    on_torch = [model for model in models if model.engine in registry.ON_TORCH]
    needs_torch = not all(isinstance(model, PreparationModel) for model in on_torch)
    return _fork_server("workers.app", *(["torch"] if needs_torch else []))


class WatchedWorker(ForkedChild):
    """Worker process of these settings, over all its incarnations."""

    def __init__(
        self, server: ForkServer, name: str, settings: Settings, log: Path | None = None
    ) -> None:
        self._watch = watchdog.Watch()
        env = settings.environment() | {watchdog.FD_VARIABLE: str(self._watch.fd)}
        env |= shared_fork_server.environment()
        super().__init__(server, name, "workers", env, log, pass_fds=(self._watch.fd,))
        self._settings = settings
        self._file, self._known = ModelsFile(settings.models), dict[str, Model]()
        self._out_of_memory_kills = _out_of_memory_kills()
        self._hung = self._hung_loading = self._reported = False
        self._heartbeat: threading.Thread | None = None
        self._kill_at_s: float | None = None
        self._overdue = 0  # looks in a row at which a launch was overdue
        self._device_failures = DeviceFailures()
        self._quarantined = 0  # incarnation after which none is started; 0: not quarantined
        self._quarantine_recorded = False
        self._retired = threading.Event()
        self._died: Death = "killed"  # cause of the latest death
        self._load_deaths = LoadDeaths()

    def start(self) -> None:
        """Starts the worker, and the thread that reports it alive."""
        self._watch.reset(self._load_deaths.history(self._declared().values()))
        self._hung, self._reported, self._kill_at_s = False, False, None
        if self._heartbeat is None:
            name = f"reports of {self.name}"
            self._heartbeat = owner.keep(name, self._report_alive, self._retired)
        super().start()

    def keep_alive(self) -> None:
        """Restarts a worker that has ended, a quarantined one once an operator resumed it."""
        if self._start_at == inf and not (self._quarantined or self.alive()):
            self._start_at = clock.monotonic()
            self._device_failures.forget()
        super().keep_alive()

    def watch(self) -> None:
        """Kills a worker that hangs, and ends one that has grown."""
        self._out_of_memory_kills = _out_of_memory_kills()
        if self._hangs():
            self._end_hung()
        elif self._settings.worker_max_mb:
            self._end_grown()

    def ready(self) -> bool:
        """Returns True if this incarnation has registered; its models may still load."""
        return self._watch.incarnation > 0

    @property
    def incarnation(self) -> int:
        """Number of the incarnation that runs; 0: it has not registered yet."""
        return self._watch.incarnation

    def healthy(self) -> bool:
        """Returns True if the worker had come up."""
        return self.ready() or super().healthy()

    def ended(self, code: int) -> None:
        """Reports the death on a thread: the database may be down."""
        self._died = self._cause(code)
        if code in (0, watchdog.RECLAIMED_EXIT_CODE):
            self._load_deaths.forget()
        elif loading := self._died_loading(code):
            self._count_load_death(loading)
        self._count_device_failure(code)
        if self.ready():
            self._reported = True
            spared = self._generating() if self._ended_orderly(code) else ()
            how = self._watch.incarnation, self._died
            arguments = (self._settings, self._models(), spared, *how)
            owner.spawn(f"death of {self.name}", functools.partial(_report_death, *arguments))

    def retired(self) -> None:
        """Ends the thread that reports it alive."""
        self._retired.set()

    def restart_delay_s(self, code: int) -> float:
        """Returns the pause before the next start: longer after each failure of the device, and inf
        for a quarantined worker. One that was reclaimed starts again where its machine is still
        there long after."""
        if code == watchdog.RECLAIMED_EXIT_CODE:
            return self._settings.spot_notice_s + _RECLAIMED_FOR_S
        if device_failed(code):
            return self._device_failures.pause_s()
        return super().restart_delay_s(code)

    def _count_device_failure(self, code: int) -> None:
        self._device_failures.count(code, clock.monotonic() - self._started_at)
        if device_failed(code) and self._device_failures.too_many:
            _log.critical(
                "%s: its device failed again and again; it starts again once it is resumed, with "
                "`millrace worker resume %d`",
                *(self.name, self._watch.incarnation),
            )
            self._quarantined, self._quarantine_recorded = self._watch.incarnation, False

    def kill(self) -> None:
        """Kills the worker at the end; its items are not blamed for that."""
        super().kill()
        cleanly = self.process is None or self.process.returncode == 0
        if self.ready() and not cleanly and not self._reported:
            self._reported = True
            incarnation = self._watch.incarnation
            models = self._models(), self._generating()
            _report_death(self._settings, *models, incarnation, "killed", for_s=1.0)

    def _models(self) -> Collection[str]:
        """Models that the worker may have served: all that were declared since it began."""
        self._known |= self._declared()
        return list(self._known)

    def _generating(self) -> Collection[str]:
        """Those of them that generate: their calls go on as often as it takes. Others run at most
        twice, whatever ended their workers."""
        return [key for key in self._models() if self._known[key].spec.generates]

    def _declared(self) -> dict[str, Model]:
        self._file.poll()
        return {model.key: model for model in self._file.models.of_pool(self._settings.pool)}

    def _report_alive(self) -> None:
        """Reports the worker alive while it is, once it has registered, and a quarantined one until
        it is resumed.

        A launch that holds the GIL for longer than a lease loses its slices, but is not dead.
        """
        every_s = self._settings.lease_s / 3
        while not self.ready():
            if self._retired.wait(every_s):
                return
        from ops.supervisor import worker_reports

        database = worker_reports.connect(self._settings)
        try:
            while not self._retired.is_set():
                try:
                    self._report_state(database)
                except worker_reports.DatabaseError as error:
                    _log.warning("can't report %s alive: %s", self.name, error)
                self._retired.wait(every_s)
        finally:
            database.dispose()

    def _report_state(self, database: "Database") -> None:
        from ops.supervisor import worker_reports

        if not (incarnation := self._quarantined):
            if self.ready() and self.alive():
                worker_reports.report_alive(database, self._watch.incarnation)
                worker_reports.read_registry(database, self._file.adopt)
                self._models()
        elif not self._quarantine_recorded:
            worker_reports.report_quarantined(database, incarnation, self._died)
            self._quarantine_recorded = True
        elif not worker_reports.is_quarantined(database, incarnation):
            self._quarantined = 0

    def _cause(self, code: int) -> "Death":
        if device_failed(code):
            return "sick" if code == watchdog.SICK_EXIT_CODE else "crashed"
        idle = self._hung and not self._watch.busy()
        no_item = self._watch.only_calls() or idle or self._ended_orderly(code)
        loading = self._died_loading(code) and (self._hung or not self._watch.busy())
        if no_item or loading:
            return "killed"
        return "hung" if self._hung else "crashed"

    def _ended_orderly(self, code: int) -> bool:
        """Returns True where the worker ended by itself, or was killed from outside."""
        # An orderly exit lets the engine finish: one during a launch was caused by an item.
        if self._hung:
            return False
        asked = code in (watchdog.FORCED_EXIT_CODE, watchdog.RECLAIMED_EXIT_CODE)
        orderly = asked or (code == 0 and not self._watch.busy())
        outside = ended_from_outside(code) and _out_of_memory_kills() == self._out_of_memory_kills
        return orderly or outside

    def _died_loading(self, code: int) -> str:
        """Returns the model whose load ended the worker, or an empty string."""
        if device_failed(code) or self._ended_orderly(code):
            return ""
        return "" if self._hung and not self._hung_loading else self._watch.loading

    def _count_load_death(self, key: str) -> None:
        if model := self._declared().get(key):
            how, busy = ("hung", False) if self._hung else ("crashed", self._watch.busy())
            left_out = self._load_deaths.count(model, how, busy=busy)
            then = "is left out" if left_out else "is loaded last next time"
            _log.error("%s ended while it loaded %s, which %s", self.name, key, then)

    def poll_s(self) -> float:
        """Returns the longest pause before the next look: until a deadline, and short after it."""
        return min(super().poll_s(), max(_OVERDUE_POLL_S, self._watch.left_s()))

    def _hangs(self) -> bool:
        """Returns True where the engine is overdue at several looks in a row: a machine that stood
        still delays them as well. A process that is stopped (SIGSTOP) isn't hung."""
        overdue = self._watch.hangs() or self._watch.load_hangs()
        overdue = overdue and not is_stopped(self.pid)
        self._overdue = self._overdue + 1 if overdue else 0
        return self._overdue >= _OVERDUE_LOOKS

    def _end_hung(self) -> None:
        self._hung, self._hung_loading = True, not self._watch.hangs()
        what = f"loading {self._watch.loading}" if self._hung_loading else "a launch"
        _log.error("%s (pid %s) hangs in %s: killed", self.name, self.pid, what)
        super().kill()

    def _end_grown(self) -> None:
        """Terminates a worker that has grown, and kills it after a grace."""
        if self._kill_at_s is None:
            size_mb = resident_mb(self.pid)
            if size_mb > self._settings.worker_max_mb:
                _log.warning("%s (pid %s) has grown to %d MiB", self.name, self.pid, size_mb)
                self._kill_at_s = clock.monotonic() + grace_s(self._settings)
                self.terminate()
        elif clock.monotonic() > self._kill_at_s:
            super().kill()


def _report_death(
    settings: Settings,
    models: Collection[str],
    spared: Collection[str],
    incarnation: int,
    how: "Death",
    for_s: float = _REPORT_FOR_S,
) -> None:
    from ops.supervisor import worker_reports

    worker_reports.report_death(settings, models, spared, incarnation, how, for_s)


def _out_of_memory_kills() -> int:
    """Number of kills for memory on this machine and in this control group."""
    return sum(
        int(line.split()[1])
        for path in (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"))
        if path.exists()
        for line in path.read_text().splitlines()
        if line.startswith("oom_kill ")
    )
