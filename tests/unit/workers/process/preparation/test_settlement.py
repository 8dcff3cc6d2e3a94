"""Outcomes of preparation: what passes on, and what fails with which words."""

from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any, cast

import orjson
import pytest

from jobs import ids
from jobs.blobs.payloads import Payloads
from jobs.models.model import Model, PreparationModel
from jobs.store import prepared
from jobs.store.queue import workers
from jobs.store.queue.claim import Lease
from workers.engines.protocol import InvalidInput, Prepared
from workers.items.in_flight import ClaimedBatch, InFlightSlice, ItemOutcome
from workers.items.sources import InputSources
from workers.process.preparation.settlement import PreparationSettlement

BASE = Model("minilm", "1", "minilm", prepare="pool")
STAGE = PreparationModel.create(BASE)


class Database:
    @contextmanager
    def begin(self) -> Any:
        yield


class Store:
    def put(self, items: Sequence[Any]) -> list[str]:
        return [f"place {seq}" for _, seq, _ in items]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Places and messages of errors by seq, once a slice is settled."""
    found: dict[int, str] = {}

    def settle(tx: Any, leases: Any, rows: Any, results: Any, attempts: Any, **_: Any) -> int:
        found.update({row.seq: row.place for row in rows})
        found.update({row.seq: orjson.loads(row.error)["message"] for row in results})
        return len(leases)

    monkeypatch.setattr(workers, "insert_launches", lambda *_: None)
    monkeypatch.setattr(prepared, "settle", settle)
    return found


def finish(in_flight: InFlightSlice, outputs: Sequence[Any]) -> None:
    in_flight.expect(len(outputs))
    for seq, output in enumerate(outputs):
        its = output if isinstance(output, list) else [output]
        if isinstance(output, list):
            in_flight.expect_parts(seq, len(its))
        in_flight.add([ItemOutcome(seq, 1, 0.0, 1, one, 0, n) for n, one in enumerate(its)])


def test_an_error_names_the_input_of_its_list(settled: dict[int, str]) -> None:
    good, bad = Prepared(1, "a"), InvalidInput("no text")
    unsendable = Prepared(1, object())
    [in_flight] = ClaimedBatch([Lease(ids.new(), 0, 5, 1, "t", STAGE.key, "{}")]).slices
    finish(in_flight, [good, bad, [good, good], [good, good, bad], [good, unsendable]])
    sources = InputSources(Payloads(), cast(Any, Store()))
    database = cast(Any, Database())
    settlement = PreparationSettlement(database, 1, sources, "prepare", lambda model: model.price)
    settlement.settle(STAGE, [in_flight])
    assert settled[0] == "place 0"
    assert settled[1] == "no text"
    assert settled[2] == "place 2"
    assert settled[3] == "input 2 of the list: no text"
    assert settled[4].startswith("prepared input can't be sent: it holds a builtins.object")
