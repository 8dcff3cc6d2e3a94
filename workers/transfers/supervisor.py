"""Keeper's side of transfers: claims what is due, has a child process run it, renews the claim."""

import logging
import threading
from contextlib import suppress

import psycopg
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock
from jobs.processes.pool import Child, ProcessPool
from jobs.settings import Settings
from jobs.store.jobs import transfers
from jobs.store.jobs.transfers import Transfer
from jobs.telemetry import logs
from jobs.telemetry.tracing import spans
from workers.service import Service
from workers.transfers.child import Postponed

_log = logging.getLogger(__name__)

PROCESSES = 2  # of one keeper
_POLL_S = 0.2  # between two looks at whether the keeper stops
_RETRY_S = 1.0  # after a process was killed


class TransferSupervisor(Service):
    """Keeper service: runs one transfer at a time in a process of the pool."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        database: Database,
        processes: ProcessPool,
        stopping: threading.Event,
    ) -> None:
        super().__init__(name, settings.keeper_interval_s)
        self._lease_s, self._database = settings.lease_s, database
        self._processes, self._stopping = processes, stopping

    def run_once(self) -> int:
        """Runs the transfer that is due next; returns 0 where none is. Raises database errors."""
        with self._database.begin() as tx:
            transfer = transfers.claim(tx, self._lease_s)
        if transfer is None:
            return 0
        about = transfer.named
        with (
            logs.bound_fields(**about),
            spans.span_in_trace(transfer.traceparent, transfer.kind) as span,
        ):
            span.set_attributes(
                millrace__job__id=about["job_id"],
                millrace__tenant=transfer.tenant,
                millrace__tries=transfer.tries,
            )
            span.error = self._run(transfer)
        return 1

    def _run(self, transfer: Transfer) -> str:
        """Returns a code of what went wrong; empty where another try wouldn't help."""
        try:
            with self._processes.child() as child:
                child.send(transfer)
                if not self._renew_until_done(child, transfer):
                    return "stopped"
                outcome: Postponed | None = child.result()
        except (EOFError, OSError):
            _log.error("the process with the %s was killed", transfer)
            error = "the process that had it in hand was killed"
            self._postpone(transfer, Postponed(_RETRY_S, error, died=True))
            return "process_lost"
        if outcome:
            self._postpone(transfer, outcome)
        return "postponed" if outcome else ""

    def _renew_until_done(self, child: Child, transfer: Transfer) -> bool:
        """Returns True once there is a result; False where the claim was lost or the keeper stops:
        the process is killed then."""
        every_s = self._lease_s / 3
        next_s = clock.monotonic() + every_s
        while not child.wait(min(_POLL_S, every_s)):
            if self._stopping.is_set():
                child.kill()
                with self._database.begin() as tx:
                    transfers.release(tx, transfer)
                return False
            if clock.monotonic() >= next_s:
                next_s = clock.monotonic() + every_s
                if not self._renew(transfer):
                    child.kill()
                    return False
        return True

    def _renew(self, transfer: Transfer) -> bool:
        """Returns False where the claim was lost; while the database is away no other can claim."""
        with suppress(SQLAlchemyError, psycopg.Error), self._database.begin() as tx:
            return transfers.renew(tx, transfer, self._lease_s)
        return True

    def _postpone(self, transfer: Transfer, outcome: Postponed) -> None:
        _log.warning("%s waits: %s", transfer, outcome.error)
        error = outcome.error[:1000].encode("utf-8", "replace").decode().replace("\0", "")
        with self._database.begin() as tx:
            transfers.postpone(tx, transfer, outcome.wait_s, error, died=outcome.died)
