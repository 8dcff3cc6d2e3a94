"""The keeper's side: claims what is due, has a process do it, and renews the claim meanwhile."""

import logging
import threading
from contextlib import suppress
from multiprocessing import get_context

import psycopg
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock
from jobs.settings import Settings
from jobs.store.jobs import transfers
from jobs.store.jobs.transfers import Transfer
from jobs.telemetry import logs
from jobs.telemetry.reports import child_processes
from jobs.telemetry.tracing import spans
from workers.transfers import child
from workers.transfers.child import Postponed

_log = logging.getLogger(__name__)

PROCESSES = 2
_LOOK_S = 0.2  # at whether we were told to stop
_HEAD_START_S = 0.2  # of who has a process by now: another one need not be started
_AGAIN_S = 1.0  # after a process ended without a word
_SPAWN = get_context("spawn")


class TransferSupervisor:
    """One thread with a process of its own, which it starts when there is something to do."""

    def __init__(self, settings: Settings, database: Database, stopping: threading.Event) -> None:
        self._settings, self._database, self._stopping = settings, database, stopping
        self._due = threading.Event()
        self._process: _Process | None = None

    def notify(self) -> None:
        """Something may be due."""
        self._due.set()

    def run(self) -> None:
        """Until told to stop; what is in hand then is given back."""
        try:
            while not self._stopping.is_set():
                try:
                    worked = self.run_once()
                except (SQLAlchemyError, psycopg.Error) as error:
                    _log.warning("transfers: %s", error)
                    worked = False
                if not worked:
                    self._wait()
        finally:
            if self._process:
                self._process.kill()

    def _wait(self) -> None:
        self._due.wait(self._settings.keeper_interval_s)
        self._due.clear()
        if self._process is None:
            self._stopping.wait(_HEAD_START_S)

    def run_once(self) -> bool:
        """Does what is due next; False where nothing is."""
        with self._database.begin() as tx:
            mine = transfers.claim(tx, self._settings.lease_s)
        if mine is None:
            return False
        with logs.about(**mine.named), spans.part_of(mine.traceparent, mine.kind) as span:
            span.note(
                millrace__job__id=mine.named["job_id"],
                millrace__tenant=mine.tenant,
                millrace__tries=mine.tries,
            )
            span.error = self._carry(mine)
        return True

    def _carry(self, mine: Transfer) -> str:
        """Returns what went wrong, as a code; empty: nothing that trying again would help."""
        process = self._started()
        try:
            process.ask(mine)
            if not self._renewed(process, mine):
                return "stopped"
            outcome = process.answer()
            self._end(mine, outcome)
            return "postponed" if outcome else ""
        except (EOFError, OSError):
            process.kill()
            _log.error("the process with the %s was killed", mine)
            self._end(
                mine, Postponed(_AGAIN_S, "the process that had it in hand was killed", died=True)
            )
            return "process_lost"

    def _started(self) -> "_Process":
        if self._process is None or not self._process.alive():
            self._process = _Process(self._settings)
        return self._process

    def _renewed(self, process: "_Process", mine: Transfer) -> bool:
        """Until there is an answer: True. Where it is not ours any more, or we stop, its process is
        killed."""
        every_s = self._settings.lease_s / 3
        next_s = clock.monotonic() + every_s
        while not process.answered(min(_LOOK_S, every_s)):
            if self._stopping.is_set():
                process.kill()
                with self._database.begin() as tx:
                    transfers.release(tx, mine)
                return False
            if clock.monotonic() >= next_s:
                next_s = clock.monotonic() + every_s
                if not self._renew(mine):
                    process.kill()
                    return False
        return True

    def _renew(self, mine: Transfer) -> bool:
        """While the database is away nobody can claim it either."""
        with suppress(SQLAlchemyError, psycopg.Error), self._database.begin() as tx:
            return transfers.renew(tx, mine, self._settings.lease_s)
        return True

    def _end(self, mine: Transfer, outcome: Postponed | None) -> None:
        if outcome:
            _log.warning("%s waits: %s", mine, outcome.error)
            error = outcome.error[:1000].encode("utf-8", "replace").decode().replace("\0", "")
            with self._database.begin() as tx:
                transfers.postpone(tx, mine, outcome.wait_s, error, died=outcome.died)


class _Process:
    def __init__(self, settings: Settings) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=child.serve, args=(theirs, settings), daemon=True)
        self._process.start()
        theirs.close()  # ours is the only other end: we read EOF when the process is gone

    def alive(self) -> bool:
        return self._process.is_alive()

    def ask(self, mine: Transfer) -> None:
        """Raises OSError where the process is gone."""
        self._pipe.send(mine)

    def answered(self, timeout_s: float) -> bool:
        return self._pipe.poll(timeout_s)

    def answer(self) -> Postponed | None:
        """Raises EOFError where the process is gone."""
        found: Postponed | None
        found, counted = self._pipe.recv()
        child_processes.add(counted)
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
