"""Settlement of slices, and records of those that go on: outcomes to rows, long outputs to the blob
store, rows to the database in one transaction, then metrics, log and spans."""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Engine as Database

from jobs import clock, ids
from jobs.models.model import Limits, Model
from jobs.models.pricing import Price
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.queue import settle, workers
from jobs.store.queue.checkpoints import Piece
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Attempt, Result
from jobs.store.queue.workers import LaunchRow
from jobs.telemetry import logs
from workers.device.monitoring import launch_metrics, tracing
from workers.items import results
from workers.items.in_flight import ClaimedBatch, InFlightSlice
from workers.items.retry import retry_while_away
from workers.items.sources import InputSources
from workers.scheduler.entries import Launch

_log = logging.getLogger(__name__)
_RECORD_FOR_S = 60.0  # results are retried for so long while the database or the store is away


class Settlement:
    """Settles slices of one worker, for any thread. price: what a model's use costs now."""

    def __init__(
        self,
        database: Database,
        incarnation: int,
        sources: InputSources,
        pool: str,
        price: Callable[[Model], Price],
    ) -> None:
        self._database, self._sources = database, sources
        self._incarnation, self._pool, self._price = incarnation, pool, price
        self._lock = threading.Lock()  # guards what is below
        self._launches: list[LaunchRow] = []
        self._launch_number = incarnation << 32

    def record_launch(self, model: Model, launch: Launch) -> int:
        """Keeps a launch for the next transaction; returns its id."""
        age_s = clock.monotonic() - launch.started_s
        with self._lock:
            self._launch_number += 1
            row = LaunchRow(
                id=self._launch_number,
                incarnation=self._incarnation,
                model=model.name,
                version=model.version,
                bucket=launch.bucket,
                reason=launch.reason,
                items=len(launch.items),
                calls=len(launch.calls),
                units=launch.units,
                padded_units=launch.padded_units,
                predicted_ms=launch.predicted_s * 1000,
                engine_ms=launch.engine_s * 1000,
                started_at=clock.ago(age_s),
                batch_ms=(launch.started_s - launch.closed_s) * 1000,
            )
            self._launches.append(row)
        return row.id

    def settle(self, model: Model, finished: Sequence[InFlightSlice]) -> None:
        """Settles finished slices of one model. While the database or the blob store is away it
        tries again: the leases' epochs keep that safe."""
        since_s = clock.monotonic()
        progress = [piece for one in finished for piece in one.progress]
        settled = self._store(model, finished, progress, since_s + _RECORD_FOR_S)
        tracing.end_slices(finished, since_s, settled or 0)

    def record(self, model: Model, batch: ClaimedBatch) -> None:
        """Records what ended of a claim's slices that go on. Tries once: while the database or the
        blob store is away the outcomes stay with their slices."""
        parts = batch.take_outcomes()
        taken = list(parts.values())
        if taken and self._store(model, taken, None, clock.monotonic()) is None:
            batch.put_back(parts)
        else:
            tracing.count_outcomes(parts)

    def _store(
        self,
        model: Model,
        slices: Sequence[InFlightSlice],
        progress: Sequence[Piece] | None,
        give_up_s: float,
    ) -> int | None:
        """Writes the outcomes of slices; returns the number of leases that were still held, and
        None where the database or the blob store was away until `give_up_s` (monotonic). progress:
        output of items that go on elsewhere; None: the slices stay with this worker."""
        rows, attempts = to_rows(slices, model.limits, model)
        stored = results.stash(self._sources.payloads, rows, give_up_s)
        if stored is None:
            return None
        if progress is None:
            write: Callable[..., int] = settle.record
        else:
            write = partial(settle.settle, pool=self._pool, progress=progress)
        leases, prices = [one.lease for one in slices], {model.key: self._price(model)}
        since_s = clock.monotonic()
        held = self._write_until(give_up_s, write, leases, stored, attempts, prices)
        if held is None:
            return None
        took_s = clock.monotonic() - since_s
        launch_metrics.record_settlement(slices, stored, attempts, took_s, held)
        if held < len(leases):
            with logs.bound_fields(**_ids(leases)):
                _log.warning("%d of %d leases had been lost", len(leases) - held, len(leases))
        return held

    def _write_until(
        self, give_up_s: float, write: Callable[..., int], leases: Sequence[Lease], *rows: Any
    ) -> int | None:
        """Writes rows in one transaction, and tries again while the database is away, until
        `give_up_s` (monotonic): then it returns None."""
        return retry_while_away(
            partial(self._write, write, leases, *rows),
            CONNECTION_ERRORS,
            give_up_s,
            partial(_warn, leases, len(rows[0])),
        )

    def _write(
        self,
        write: Callable[..., int],
        leases: Sequence[Lease],
        *rows: Any,
    ) -> int:
        with self._lock:
            launches, self._launches = self._launches, []
        try:
            with self._database.begin() as tx:
                workers.insert_launches(tx, launches)
                return write(tx, leases, *rows)
        except CONNECTION_ERRORS:
            with self._lock:
                self._launches += launches
            raise


def to_rows(
    slices: Sequence[InFlightSlice], limits: Limits, model: Model | None = None
) -> tuple[list[Result], list[Attempt]]:
    """Returns the results of slices, and the failures that will be retried. model: as for
    `results.rows`."""
    rows: list[Result] = []
    attempts: list[Attempt] = []
    for in_flight in slices:
        ended, failed = results.rows(in_flight, limits, model)
        rows += ended
        attempts += failed
    return rows, attempts


def _warn(leases: Sequence[Lease], rows: int, error: Exception) -> None:
    with logs.bound_fields(**_ids(leases)):
        _log.warning("can't record %d results yet: %s", rows, error)


def _ids(leases: Sequence[Lease]) -> dict[str, str]:
    """Returns job and tenant for the log, where all leases are of one job."""
    if len({lease.job_id for lease in leases}) > 1:
        return {}
    return {"job_id": ids.show("job", leases[0].job_id), "tenant": leases[0].tenant}
