"""Transfers in a child process: parsing a million lines slows nothing in the keeper, and a file
that exhausts memory ends nothing else."""

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

from jobs import clock
from jobs.errors import (
    BlobStoreUnavailable,
    MillraceError,
    QuotaExceeded,
    Untransferable,
    is_disk_full,
)
from jobs.processes.child import ChildKind
from jobs.settings import Settings
from jobs.store import db
from jobs.store.jobs import transfers
from jobs.store.jobs.transfers import Transfer
from jobs.store.tenancy import acting
from jobs.telemetry import logs
from jobs.telemetry.metrics import record
from workers.transfers import exporting, importing
from workers.transfers.context import ClaimLost, TransferContext

_log = logging.getLogger(__name__)

MAX_FAULTS = 100  # named by a job's error, which says how many there are
_NICE = 5  # as of the api's own child processes: at 10, a busy machine starves them
_OOM_SCORE = 500  # where memory is short, these processes go before the keeper
_MAX_DEATHS = 4
_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 300.0  # between two tries
_NO_START_S = 5.0  # pause where the process can't connect to what it needs

_PROCESS_LOST = (
    "{count} processes in a row ended while they had it in hand, or found a disk full; it may need "
    "more memory or disk than there is"
)


@dataclass(frozen=True, slots=True)
class Postponed:
    """Outcome of a transfer that is to be tried again."""

    wait_s: float
    error: str
    died: bool = False  #: True if its process ended, found a disk full, or had an unknown error


def run_transfer(context: TransferContext, transfer: Transfer) -> Postponed | None:
    """Imports or exports. Returns None where it has ended, or its claim was lost."""
    steps = importing if transfer.kind == "import" else exporting
    try:
        with acting(context.database, transfer.tenant) as tx:
            job = transfers.job(tx, transfer)
        if job is None:
            return None
        try:
            if transfer.deaths > _MAX_DEATHS:
                message = _PROCESS_LOST.format(count=transfer.deaths - 1)
                raise Untransferable("process_lost", message)
            steps.run(context, transfer, job)
            record.transferred(transfer.kind, "done")
        except MillraceError as error:
            if _may_pass(error) and not (steps is exporting and exporting.give_up(job)):
                pause_s, full = _pause_s(transfer.tries), is_disk_full(error)
                return Postponed(pause_s, error.detail, died=full)
            why = error_object(error)
            _log.warning("%s failed: %s", transfer, why["code"])
            steps.fail(context, transfer, why)
            record.transferred(transfer.kind, "failed")
    except ClaimLost:
        _log.info("%s was claimed by another process, or its job changed", transfer)
    except db.CONNECTION_ERRORS as error:
        _log.warning("%s: %s", transfer, error)
        return Postponed(_pause_s(transfer.tries), "the database can't be reached")
    except OSError as error:
        _log.warning("%s: %s", transfer, error)
        message = f"its process can't go on: {error.strerror}"
        return Postponed(_pause_s(transfer.tries), message, died=is_disk_full(error))
    return None


def _may_pass(error: MillraceError) -> bool:
    return (
        error.retryable
        if isinstance(error, QuotaExceeded)
        else isinstance(error, BlobStoreUnavailable)
    )


def error_object(error: MillraceError) -> dict[str, Any]:
    """Renders an error as a job's `error`."""
    code = error.how if isinstance(error, Untransferable) else error.code
    faults = [fault.as_json() for fault in error.faults[:MAX_FAULTS]]
    return {"code": code, "message": error.detail} | ({"errors": faults} if faults else {})


def _pause_s(tries: int) -> float:
    longest_s: float = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries - 1, 20))
    return longest_s / 2 + clock.jitter(longest_s / 2)


class TransferHandler:
    """Runs the transfers of one child process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _context(self) -> TransferContext:
        return TransferContext.open(self._settings)

    def __call__(self, transfer: Transfer, file: IO[bytes] | None = None) -> Postponed | None:
        """Runs a transfer and returns its outcome, as `run_transfer`; never raises."""
        with logs.bound_fields(**transfer.named):
            try:
                context = self._context
            except Exception as error:  # a fault of the configuration, not of the job
                _log.error("transfers can't start: %s", error)
                return Postponed(_NO_START_S, "its process can't start: see the keeper's log")
            context.file.poll()
            return outcome(context, transfer)


def outcome(context: TransferContext, transfer: Transfer) -> Postponed | None:
    """Runs a transfer; unknown errors become a postponement that counts as a death."""
    try:
        return run_transfer(context, transfer)
    except Exception as error:
        _log.exception("%s", transfer)
        message = f"an error of ours: {type(error).__name__}"
        return Postponed(_pause_s(transfer.tries), message, died=True)


KIND = ChildKind("transfers", TransferHandler, _NICE, _OOM_SCORE)
