"""Steps of settlements: outcomes to rows, and one transaction that is tried again."""

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from sqlalchemy.exc import OperationalError

from jobs import clock, ids
from jobs.blobs.payloads import Payloads
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Limits, Model, PreparationModel
from jobs.store import prepared
from jobs.store.queue import settle, workers
from jobs.store.queue.claim import Lease
from workers.engines.protocol import InvalidInput, Prepared, Transient
from workers.items.in_flight import ClaimedBatch, InFlightSlice, ItemOutcome
from workers.items.sources import InputSources
from workers.process.preparation.settlement import PreparationSettlement
from workers.process.settlement import Settlement, to_rows
from workers.scheduler.entries import Entry, Launch

ECHO = SAMPLES.resolve("echo")
DATABASE: Any = SimpleNamespace(begin=lambda: nullcontext())


def finished(*outputs: Any, model: str = ECHO.key) -> InFlightSlice:
    """A slice of items that ended so; a list has an output for each of its inputs."""
    lease = Lease(ids.new(), 0, len(outputs), 1, "tenant", model, "{}")
    [in_flight] = ClaimedBatch([lease]).slices
    in_flight.expect(len(outputs))
    for seq, output in enumerate(outputs):
        its = output if isinstance(output, list) else [output]
        if isinstance(output, list):
            in_flight.expect_parts(seq, len(its))
        in_flight.add([ItemOutcome(seq, 1, 0.0, 1, one, 0, n) for n, one in enumerate(its)])
    return in_flight


def test_outcomes_of_all_slices_become_rows_and_attempts() -> None:
    rows, attempts = to_rows([finished("a", ValueError("b")), finished(Transient("c"))], Limits())
    assert [row.outcome for row in rows] == ["succeeded", "failed"]
    assert [attempt.n for attempt in attempts] == [1]


def test_results_and_launches_are_written_once_though_the_database_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures, launches, results = [OperationalError("", {}, Exception("away"))] * 3, [], []

    def insert_launches(tx: Any, rows: Any) -> None:
        if failures:
            raise failures.pop()
        launches.extend(row.id for row in rows)

    def write(tx: Any, leases: Any, rows: Any, *_: Any, **__: Any) -> int:
        results.extend(row.output for row in rows)
        return len(leases)

    monkeypatch.setattr(workers, "insert_launches", insert_launches)
    monkeypatch.setattr(settle, "settle", write)
    monkeypatch.setattr(clock, "sleep", lambda seconds: None)
    sources = InputSources(Payloads())
    settlement = Settlement(DATABASE, 7, sources, "default", lambda model: model.price)
    launch = Launch({}, "full", [], [Entry(None, 0, "{}/0", 0, 1, "a", 0.0)], closed_s=1.0)
    id = settlement.record_launch(ECHO, launch)
    settlement.settle(ECHO, [finished("a")])
    settlement.settle(ECHO, [finished("b")])
    assert (launches, results) == ([id], ['"a"', '"b"'])
    assert id >> 32 == 7


class Store:
    def put(self, items: Sequence[Any]) -> list[str]:
        return [f"place {seq}" for _, seq, _ in items]


def test_an_error_of_preparation_names_the_input_of_its_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled: dict[int, str] = {}  # by seq: the place, or what its error says

    def write(tx: Any, leases: Any, rows: Any, results: Any, attempts: Any, **_: Any) -> int:
        settled.update({row.seq: row.place for row in rows})
        settled.update({row.seq: orjson.loads(row.error)["message"] for row in results})
        return len(leases)

    monkeypatch.setattr(workers, "insert_launches", lambda *_: None)
    monkeypatch.setattr(prepared, "settle", write)
    stage = PreparationModel.create(Model("minilm", "1", "minilm", prepare="pool"))
    store: Any = Store()
    sources = InputSources(Payloads(), store)
    settlement = PreparationSettlement(DATABASE, 1, sources, "prepare", lambda model: model.price)
    good, bad, unsendable = Prepared(1, "a"), InvalidInput("no text"), Prepared(1, object())
    outputs = good, bad, [good, good], [good, good, bad], [good, unsendable]
    settlement.settle(stage, [finished(*outputs, model=stage.key)])
    words = settled.pop(4)
    assert words.startswith("prepared input can't be sent: it holds a builtins.object")
    assert settled == {0: "place 0", 1: "no text", 2: "place 2", 3: "input 2 of the list: no text"}
