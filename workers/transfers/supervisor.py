"""Keeper's side of transfers: claims what is due, has a child process run it, renews the claim."""

import logging
import threading
from contextlib import suppress

import psycopg
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock
from jobs.errors import without_surrogates
from jobs.processes.pool import Child, OutOfMemory, ProcessPool
from jobs.processes.tenant_slots import TenantSlots
from jobs.settings import Settings
from jobs.store.jobs import transfers
from jobs.store.jobs.transfers import ProcessEnd, Transfer
from jobs.telemetry import logs
from jobs.telemetry.tracing import spans
from workers.service import Service
from workers.transfers.child import KIND, Postponed, pause_s

_log = logging.getLogger(__name__)

PROCESSES = 3  # of one keeper; a tenant has two of them at most
_POLL_S = 0.2  # between two looks at whether the keeper stops
_ENDED_WITHIN_S = 2.0  # from the end of a transfer to the report of its process


class TransferPool:
    """Processes of one keeper's transfers, and the tenants that use them."""

    def __init__(self, settings: Settings) -> None:
        self.processes = ProcessPool(KIND, settings)
        self.slots = TenantSlots(PROCESSES)
        self.claiming = threading.Lock()  # guards the slots, and is held while one claims

    def close(self) -> None:
        """Ends all processes, busy or not."""
        self.processes.close()


class TransferSupervisor(Service):
    """Keeper service: runs one transfer at a time in a process of the pool."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        database: Database,
        pool: TransferPool,
        stopping: threading.Event,
    ) -> None:
        super().__init__(name, settings.keeper_interval_s)
        self._lease_s, self._database = settings.lease_s, database
        self._pool, self._stopping = pool, stopping

    def run_once(self) -> int:
        """Runs the transfer that is due next; returns 0 where none is. Raises database errors."""
        transfer = self._claim()
        if transfer is None:
            return 0
        try:
            self._run_traced(transfer)
        finally:
            with self._pool.claiming:
                self._pool.slots.give_back(transfer.tenant)
        return 1

    def _claim(self) -> Transfer | None:
        """Claims a transfer of a tenant that may have another process, and takes a slot for it."""
        with self._pool.claiming:
            with self._database.begin() as tx:
                transfer = transfers.claim(tx, self._lease_s, not_of=self._pool.slots.full())
            if transfer:
                self._pool.slots.take(transfer.tenant)
        return transfer

    def _run_traced(self, transfer: Transfer) -> None:
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

    def _run(self, transfer: Transfer) -> str:
        """Returns a code of what went wrong; empty where another try wouldn't help."""
        child: Child | None = None
        try:
            with self._pool.processes.child() as child:
                child.send(transfer)
                if not self._renew_until_done(child, transfer):
                    return "stopped"
                outcome: Postponed | None = child.result()
        except OutOfMemory as error:
            self._postpone_lost(transfer, "crashed", str(error))
            return "process_lost"
        except (EOFError, OSError):
            if child and not child.was_killed():
                self._postpone_lost(transfer, "crashed", "crashed")
            else:
                self._postpone_lost(transfer, "killed", "was killed")
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
                    # It may just have ended the transfer itself: what it counted isn't lost then.
                    if child.wait(_ENDED_WITHIN_S):
                        return True
                    child.kill()
                    return False
        return True

    def _renew(self, transfer: Transfer) -> bool:
        """Returns False where the claim was lost; while the database is away no other can claim."""
        with suppress(SQLAlchemyError, psycopg.Error), self._database.begin() as tx:
            return transfers.renew(tx, transfer, self._lease_s)
        return True

    def _postpone_lost(self, transfer: Transfer, end: ProcessEnd, what: str) -> None:
        """Schedules another try after its process ended without a report."""
        _log.error("the process with the %s %s", transfer, what)
        message = f"the process that had it in hand {what}"
        wait_s = pause_s(transfer.kills if end == "killed" else transfer.deaths + 1)
        self._postpone(transfer, Postponed(wait_s, message, end))

    def _postpone(self, transfer: Transfer, outcome: Postponed) -> None:
        _log.warning("%s waits: %s", transfer, outcome.error)
        error = without_surrogates(outcome.error[:1000]).replace("\0", "")
        with self._database.begin() as tx:
            transfers.postpone(tx, transfer, outcome.wait_s, error, end=outcome.end)
