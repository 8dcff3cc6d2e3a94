"""Transfers one at a time, in a process beside the keeper: parsing a million lines slows nothing
there, and a file that eats all memory ends nobody else."""

import logging
import os
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any

from jobs import clock
from jobs.errors import BlobsAway, MillraceError, QuotaExceeded, Untransferable
from jobs.settings import Settings
from jobs.store import db
from jobs.store.jobs import transfers
from jobs.store.jobs.transfers import Transfer
from jobs.store.tenancy import acting
from jobs.telemetry import logs
from jobs.telemetry.metrics import record
from jobs.telemetry.reports.child_processes import ChildReports
from workers.transfers import exporting, importing
from workers.transfers.shared import NotOurs, Shared

_log = logging.getLogger(__name__)

_NICE = 10
_FIRST_TO_GO = b"500"  # of 1000: where memory is short, this one before the keeper
_MOST_DEATHS = 4
_FIRST_S, _MOST_S = 1.0, 300.0  # between two tries
_NO_START_S = 5.0  # of where no process can start

MOST_FAULTS = 100  # that a job's error names; it says how many there are


@dataclass(frozen=True, slots=True)
class Wait:
    """It is to be tried again. died: its process came to no end of its own, or none it knew of."""

    wait_s: float
    error: str
    died: bool = False


def carry(shared: Shared, mine: Transfer) -> Wait | None:
    """Does it; or says when to try again, and why. None: it has ended, or is not ours any more."""
    try:
        with acting(shared.database, mine.tenant) as tx:
            job = transfers.job(tx, mine)
        if job is None:
            return None
        do = importing.import_job if mine.kind == "import" else exporting.export_job
        try:
            if mine.deaths > _MOST_DEATHS:
                raise Untransferable("process_lost", _LOST.format(count=mine.deaths - 1))
            do(shared, mine, job)
            record.transferred(mine.kind, "done")
        except MillraceError as error:
            if _may_pass(error) and not (mine.kind == "export" and exporting.give_up(job)):
                return Wait(_pause_s(mine.tries), error.detail)
            why = described(error)
            _log.warning("%s failed: %s", mine, why["code"])
            fail = importing.fail if mine.kind == "import" else exporting.fail
            fail(shared, mine, why)
            record.transferred(mine.kind, "failed")
    except NotOurs:
        _log.info("%s is another's now, or nobody's", mine)
    except db.CONNECTION_ERRORS as error:
        _log.warning("%s: %s", mine, error)
        return Wait(_pause_s(mine.tries), "the database can't be reached")
    except OSError as error:
        _log.warning("%s: %s", mine, error)
        return Wait(_pause_s(mine.tries), f"its process can't go on: {error.strerror}")
    return None


_LOST = (
    "{count} processes in a row ended without a word while they had it in hand; it may need more "
    "memory or disk than there is"
)


def _may_pass(error: MillraceError) -> bool:
    """Whether trying again may help."""
    return error.retryable if isinstance(error, QuotaExceeded) else isinstance(error, BlobsAway)


def described(error: MillraceError) -> dict[str, Any]:
    """As jobs show it."""
    code = error.how if isinstance(error, Untransferable) else error.code
    found = [fault.as_json() for fault in error.faults[:MOST_FAULTS]]
    return {"code": code, "message": error.detail} | ({"errors": found} if found else {})


def _pause_s(tries: int) -> float:
    most_s: float = min(_MOST_S, _FIRST_S * 2 ** min(tries - 1, 20))
    return most_s / 2 + clock.jitter(most_s / 2)


def serve(pipe: Connection, settings: Settings) -> None:
    """The life of such a process: a Transfer in; a Wait or None out, with what it counted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the keeper, which ends us
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.nice(_NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb") as score:
        score.write(_FIRST_TO_GO)
    logs.configure("transfers", settings.log_format)
    record.switch(settings.metrics)
    told = ChildReports()
    with suppress(EOFError):  # the keeper is gone
        try:
            shared = Shared.of(settings)
        except Exception as error:  # of the configuration: no fault of what is to be done
            pipe.recv()
            _log.error("transfers can't start: %s", error)
            pipe.send((Wait(_NO_START_S, "its process can't start: see the keeper's log"), {}))
            return
        while True:
            mine = pipe.recv()
            shared.file.poll()
            with logs.about(**mine.named):
                pipe.send((_outcome(shared, mine), told.news()))


def _outcome(shared: Shared, mine: Transfer) -> Wait | None:
    try:
        return carry(shared, mine)
    except Exception as error:
        _log.exception("%s", mine)
        return Wait(_pause_s(mine.tries), f"an error of ours: {type(error).__name__}", died=True)


def _die_with_parent() -> None:
    """However it ended."""
    parent = parent_process()
    assert parent
    parent.join()
    os._exit(1)
