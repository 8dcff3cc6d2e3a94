"""Follower of the autoscaler: learns how many workers, or apis, there should be, for the actuator
`local`.

Loaded where `millrace up --max-workers` or `--max-apis` asks for it: SQLAlchemy would delay the
start.
"""

import logging
import threading
from collections.abc import Collection, Mapping
from math import inf
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from jobs.scaling.drain_order import drain_order
from jobs.settings import Settings
from jobs.store import db
from jobs.store.queue import workers
from jobs.store.scaling import policies
from jobs.store.scaling.leader import Leadership
from jobs.store.tenancy import EVERYBODY, acting
from ops.processes import owner
from ops.processes.children import Child
from ops.supervisor.local_workers import LocalWorkers
from ops.supervisor.worker import WatchedWorker
from workers.keeper.scaling.actuators.failures import Failures
from workers.keeper.scaling.actuators.protocol import ActuatorError

_log = logging.getLogger("millrace.processes")
_EVERY_S = 1.0
_ANSWER_S = 5.0  # of the database
ACTOR = "up"

C = TypeVar("C", bound=Child)


class ScalingFollower:
    """Reads, on a thread of its own, what was decided about a pool whose policy says `local`; the
    main thread does it by `act`.

    Of several followers of a pool one has its lead: two never act on it. settings: of a worker.
    """

    def __init__(self, settings: Settings, pool: str) -> None:
        self._settings, self._pool = settings, pool
        self._leader = Leadership(settings.database_url, f"millrace.local.{pool}")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._database = db.connect(
            settings.database_url, pool_size=1, statement_timeout_s=_ANSWER_S, role=db.WORKER
        )
        self._failures = Failures(self._database, ACTOR)
        self._failure = ""  # of the latest `act`
        self._models: Mapping[int, tuple[str, ...]] = {}  # ready, by incarnation of the pool
        self.wanted: int | None = None  #: replicas; None: nothing was decided, or others act

    def start(self) -> None:
        """Starts the thread."""
        self._thread = owner.keep(f"scaling of {self._pool}", self._run, self._stopping)

    def request_stop(self) -> None:
        """Lets the thread end after its look, and returns at once."""
        self._stopping.set()

    def stop(self) -> None:
        """Ends the thread and the lead. Where a database that doesn't answer holds the thread, that
        ends them later: both belong to it alone."""
        self.request_stop()
        if self._thread:
            self._thread.join(_ANSWER_S)
        if not (self._thread and self._thread.is_alive()):
            self._close()

    def _close(self) -> None:
        self._leader.release()
        self._database.dispose()

    def act(self, local: LocalWorkers[C]) -> None:
        """Brings them to the number that is wanted; a failure is an event at the next look, and it
        is tried again at the next call."""
        wanted = self.wanted  # the thread that follows may set it to None meanwhile
        if wanted is None:
            return
        try:
            local.apply(self._pool, wanted)
            self._failure = ""
        except ActuatorError as error:
            self._failure = str(error)

    def drain_order(
        self, by_place: Mapping[int, WatchedWorker], leaving: Collection[int]
    ) -> list[int]:
        """Returns the places of workers in the order in which they go: those whose models others of
        the pool have too, the youngest among equals. leaving: incarnations that drain already."""
        left, incarnations = dict(self._models), {n: one.incarnation for n, one in by_place.items()}
        for incarnation in leaving:
            left.pop(incarnation, None)
        oldest_first = sorted(by_place, key=lambda place: incarnations[place] or inf)
        candidates = {place: left.pop(incarnations[place], ()) for place in oldest_first}
        return drain_order(candidates, left.values())

    def look(self) -> None:
        """Reads once what was decided, and writes down what failed."""
        pool = self._pool
        with acting(self._database, EVERYBODY) as tx:
            row = policies.get(tx, pool)
            held = workers.held(tx, pool, 2 * self._settings.lease_s)
        self._models = {one.incarnation: one.models for one in held}
        if row is None or row.terms.actuator != "local" or self._stopping.is_set():
            self._leader.release()
            self.wanted = None
        else:
            self.wanted = row.desired if self._leader.hold() else None
        self._failures.report(pool, self.wanted, "" if self.wanted is None else self._failure)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._try_look()
                self._stopping.wait(_EVERY_S)
        finally:
            if self._stopping.is_set():  # else it begins again
                self._close()

    def _try_look(self) -> None:
        try:
            self.look()
        except (SQLAlchemyError, *db.CONNECTION_ERRORS, ValueError) as error:
            # ValueError: of a policy of another release
            _log.warning("can't read how many of pool %s there should be: %s", self._pool, error)
