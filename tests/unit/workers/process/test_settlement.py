"""Steps of a settlement: outcomes to rows, and one transaction that is tried again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from sqlalchemy.exc import OperationalError

from jobs import clock, ids
from jobs.blobs.payloads import Payloads
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Limits
from jobs.store.queue import settle, workers
from jobs.store.queue.claim import Lease
from workers.engines.protocol import Transient
from workers.items.in_flight import ClaimedBatch, InFlightSlice, ItemOutcome
from workers.items.sources import InputSources
from workers.process.settlement import Settlement, to_rows
from workers.scheduler.entries import Entry, Launch

ECHO = SAMPLES.resolve("echo")


def finished(*outputs: Any) -> InFlightSlice:
    lease = Lease(ids.new(), 0, len(outputs), 1, "tenant", ECHO.key, "{}")
    [in_flight] = ClaimedBatch([lease]).slices
    in_flight.expect(len(outputs))
    in_flight.add([ItemOutcome(n, 1, 0.0, 1, output) for n, output in enumerate(outputs)])
    return in_flight


def test_outcomes_of_all_slices_become_rows_and_attempts() -> None:
    rows, attempts = to_rows([finished("a", ValueError("b")), finished(Transient("c"))], Limits())
    assert [row.outcome for row in rows] == ["succeeded", "failed"]
    assert [attempt.n for attempt in attempts] == [1]


class Database:
    """Fails so many transactions, and records what the others wrote."""

    def __init__(self, failures: int, patch: pytest.MonkeyPatch) -> None:
        self.failures, self.launches, self.results = failures, list[int](), list[str | None]()
        patch.setattr(workers, "insert_launches", self._insert_launches)
        patch.setattr(settle, "settle", self._settle)
        patch.setattr(clock, "sleep", lambda seconds: None)

    @contextmanager
    def begin(self) -> Iterator[None]:
        yield

    def _insert_launches(self, tx: Any, rows: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise OperationalError("", {}, Exception("away"))
        self.launches += [row.id for row in rows]

    def _settle(self, tx: Any, leases: Any, rows: Any, *_: Any, **__: Any) -> int:
        self.results += [row.output for row in rows]
        return len(leases)


def test_results_and_launches_are_written_once_though_the_database_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = Database(3, monkeypatch)
    settlement = Settlement(
        cast(Any, database), 7, InputSources(Payloads()), "default", lambda model: model.price
    )
    launch = Launch({}, "full", [], [Entry(None, 0, "{}/0", 0, 1, "a", 0.0)], closed_s=1.0)
    id = settlement.record_launch(ECHO, launch)
    settlement.settle(ECHO, [finished("a")])
    settlement.settle(ECHO, [finished("b")])
    assert (database.launches, database.results) == ([id], ['"a"', '"b"'])
    assert id >> 32 == 7
