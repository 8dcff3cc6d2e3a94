"""Transfers in a child process: parsing a million lines slows nothing in the keeper, and a file
that exhausts memory ends nothing else."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

from sqlalchemy.exc import DBAPIError

from jobs import clock
from jobs.errors import (
    BlobStoreUnavailable,
    InsufficientStorage,
    MillraceError,
    QuotaExceeded,
    Untransferable,
    is_disk_full,
)
from jobs.processes.child import ChildKind
from jobs.settings import Settings
from jobs.store import db
from jobs.store.jobs import transfers
from jobs.store.jobs.transfers import ProcessEnd, Transfer
from jobs.store.tenancy import acting
from jobs.telemetry import logs
from jobs.telemetry.metrics import record
from workers.transfers import exporting, importing
from workers.transfers.context import ClaimLost, TransferContext

_log = logging.getLogger(__name__)

MAX_FAULTS = 100  # named by a job's error, which says how many there are
_NICE = 5  # as of the api's own child processes: at 10, a busy machine starves them
_OOM_SCORE = 500  # where memory is short, these processes go before the keeper
_MAX_CRASHES = 4
_MAX_KILLS = 20  # with the pauses between them, most of an hour
_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 300.0  # between two tries
_NO_START_S = 5.0  # pause where the process can't connect to what it needs

_PROCESS_LOST = (
    "{crashes} processes crashed and {kills} were killed while they had it in hand; it may need "
    "more memory than there is"
)


@dataclass(frozen=True, slots=True)
class Postponed:
    """Outcome of a transfer that is to be tried again."""

    wait_s: float
    error: str
    end: ProcessEnd | None = None  #: of its process, where that ended without a report


def run_transfer(context: TransferContext, transfer: Transfer) -> Postponed | None:
    """Imports or exports. Returns None where it has ended, or its claim was lost."""
    steps = importing if transfer.kind == "import" else exporting
    try:
        context.read_models()
        with acting(context.database, transfer.tenant) as tx:
            job = transfers.job(tx, transfer)
        if job is None:
            return None
        try:
            if transfer.deaths >= _MAX_CRASHES or transfer.kills > _MAX_KILLS:
                count = {"crashes": transfer.deaths, "kills": transfer.kills - 1}
                raise Untransferable("process_lost", _PROCESS_LOST.format(**count))
            with _full_disk_translated(), _own_errors_translated(transfer):
                steps.run(context, transfer, job)
            record.transferred(transfer.kind, "done")
        except MillraceError as error:
            if _may_pass(error) and not (steps is exporting and exporting.give_up(job)):
                return Postponed(pause_s(transfer.tries), error.detail)
            why = error_object(error)
            _log.warning("%s failed: %s", transfer, why["code"])
            steps.fail(context, transfer, why)
            record.transferred(transfer.kind, "failed")
    except ClaimLost:
        _log.info("%s was claimed by another process, or its job changed", transfer)
    except db.CONNECTION_ERRORS as error:
        _log.warning("%s: %s", transfer, error)
        full = "the disk of the database is full"
        message = full if is_disk_full(error) else "the database can't be reached"
        return Postponed(pause_s(transfer.tries), message)
    except OSError as error:
        _log.warning("%s: %s", transfer, error)
        return Postponed(pause_s(transfer.tries), f"its process can't go on: {error.strerror}")
    return None


@contextmanager
def _full_disk_translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        message = f"the disk of temporary files is full: {error.strerror}"
        raise InsufficientStorage(message) from error


@contextmanager
def _own_errors_translated(transfer: Transfer) -> Iterator[None]:
    """Has an error that another try would only repeat end the transfer at once: its class is told,
    its text is in the log, since it may hold data."""
    try:
        yield
    except (MillraceError, ClaimLost, OSError, MemoryError, DBAPIError, *db.CONNECTION_ERRORS):
        raise  # another try may help, as after an upgrade of the schema
    except Exception as error:
        _log.exception("%s", transfer)
        message = f"an error of ours, {type(error).__name__}: the keeper's log has the rest"
        raise MillraceError(f"{message}. Report it; `retry` tries once more") from error


def _may_pass(error: MillraceError) -> bool:
    """Returns True if another try may help: room, or the store, may be there by then."""
    if isinstance(error, QuotaExceeded):
        return error.retryable
    return isinstance(error, BlobStoreUnavailable | InsufficientStorage)


def error_object(error: MillraceError) -> dict[str, Any]:
    """Renders an error as a job's `error`."""
    code = error.how if isinstance(error, Untransferable) else error.code
    faults = [fault.as_json() for fault in error.faults[:MAX_FAULTS]]
    return {"code": code, "message": error.detail} | ({"errors": faults} if faults else {})


def pause_s(tries: int) -> float:
    """Returns the seconds until the next try: doubled with each one, with jitter."""
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
            return outcome(context, transfer)


def outcome(context: TransferContext, transfer: Transfer) -> Postponed | None:
    """Runs a transfer; errors on the way to its job, or to the end of it, postpone it. One for want
    of memory counts as a crash, as where the process is killed for it."""
    try:
        return run_transfer(context, transfer)
    except Exception as error:
        _log.exception("%s", transfer)
        message = f"an error of ours: {type(error).__name__}"
        end: ProcessEnd | None = "crashed" if isinstance(error, MemoryError) else None
        return Postponed(pause_s(transfer.tries), message, end)


KIND = ChildKind("transfers", TransferHandler, _NICE, _OOM_SCORE)
