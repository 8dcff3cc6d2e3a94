"""Payloads of any size, from submission to the reader, on both stores; and blobs that fail."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from jobs import ids
from jobs.blobs import lines
from jobs.blobs.payloads import Payloads, job_prefix, resolve_row
from jobs.blobs.store import BlobStore
from jobs.errors import BlobStoreUnavailable, Invalid, PayloadLost
from jobs.models.model import Limits, Model
from jobs.models.registry import Registry
from jobs.settings import Settings
from jobs.store.jobs import detail
from jobs.store.jobs.detail import ItemRow
from jobs.store.queue import claim as claims
from jobs.store.queue import settle
from jobs.usecases.submit import Order, submit
from jobs.views import jobs
from tests.support.stores.store import result_chunks
from tests.support.stores.transactions import scalars, transact
from workers.items import inputs
from workers.items.in_flight import ClaimedBatch, InFlightSlice, ItemOutcome
from workers.items.results import rows as rows_of
from workers.items.results import stash

ECHO = Model("echo", "1", "echo", limits=Limits(max_item_bytes=8 << 20))
MODELS = Registry([ECHO])
LARGE = 'ü\\\n"' * 350_000  # more than a MiB, with all that is ever escaped
NEVER = 0.0  # is over at once: nothing is tried twice


@pytest.fixture
def payloads(blob_settings: Settings) -> Payloads:
    where = blob_settings.blobs, blob_settings.blob_over_kb, blob_settings.s3_endpoint
    return Payloads.connect(*where)


def post(database: Engine, payloads: Payloads, *items: object) -> UUID:
    order, array = Order("echo"), list(items)
    id: UUID = submit(database, MODELS, "default", order, array=array, payloads=payloads).id
    return id


def claim(
    database: Engine, payloads: Payloads, give_up_s: float = NEVER
) -> Iterator[tuple[InFlightSlice, list[Any]]]:
    """Each slice that a worker claims, and the items that reach its device."""
    with database.begin() as tx:
        claimed = ClaimedBatch(claims.claim(tx, 1, {ECHO: 1000}, lease_s=60))
        rows = claims.read_inputs(tx, [in_flight.lease for in_flight in claimed.slices])
    for index, in_flight in enumerate(claimed.slices):
        mine = [row for row in rows if row[0] == index]
        in_flight.expect(len(mine))
        found = inputs.fetch(payloads, in_flight, mine, give_up_s)
        yield in_flight, [(row[1], json.loads(row[2])) for row in found]


def run(database: Engine, payloads: Payloads) -> None:
    """What a worker of `echo` does with all it can claim."""
    for in_flight, items in claim(database, payloads):
        in_flight.add([ItemOutcome(seq, 1, 0.5, None, value) for seq, value in items])
        results = stash(payloads, rows_of(in_flight, Limits())[0], NEVER)
        assert results is not None
        transact(database, settle.settle, [in_flight.lease], results)


def read(database: Engine, payloads: Payloads, job: UUID) -> list[dict[str, Any]]:
    body = b"".join(lines.resolve_lines(payloads, result_chunks(database, job)))
    return [json.loads(line) for line in body.split(b"\n")[:-1]]


def item(database: Engine, payloads: Payloads, job: UUID, seq: int) -> dict[str, Any]:
    row = transact(database, detail.item, "default", job, seq)
    assert row is not None
    found = ItemRow(**resolve_row(payloads, asdict(row)))
    return jobs.item_object(found, "characters", whole_launch=True)


def texts(database: Engine, table: str, column: str) -> list[str]:
    return scalars(database, f"SELECT {column} FROM {table} ORDER BY seq")


def test_large_payloads_make_the_round_trip_as_small(database: Engine, payloads: Payloads) -> None:
    sent = ["small", LARGE, {"deep": [LARGE, None]}, "@in/a 0 1", "x" * 65_534]
    job = post(database, payloads, *({"input": value} for value in sent))
    run(database, payloads)
    found = read(database, payloads, job)
    assert [line["output"] for line in found] == sent
    assert [line["outcome"] for line in found] == ["succeeded"] * 5
    for seq, value in enumerate(sent):
        seen = item(database, payloads, job, seq)
        assert (seen["input"], seen["output"], seen["error"]) == (value, value, None)
    for table, column in (("items", "input"), ("results", "output")):
        stored = texts(database, table, column)
        assert [row[0] for row in stored] == ['"', "@", "@", '"', '"']  # the last just fits
        assert max(map(len, stored)) == 65_536


def test_slices_are_cut_by_what_inputs_really_hold(database: Engine, payloads: Payloads) -> None:
    post(database, payloads, *[LARGE] * 4)
    assert scalars(database, "SELECT start FROM slices ORDER BY start") == [0, 1, 2, 3]


def test_a_refused_job_leaves_no_blob(
    database: Engine, payloads: Payloads, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: dict[str, Any] = {}
    real = Payloads.put_async

    def noting(self: Payloads, key: str, raw: bytes) -> Any:
        put[key] = real(self, key, raw)
        return put[key]

    monkeypatch.setattr(Payloads, "put_async", noting)
    with pytest.raises(Invalid):
        post(database, payloads, LARGE, {"nonsense": 1}, LARGE)
    # After a fault nothing more is put.
    [(key, stored)] = put.items()
    stored.result()
    with pytest.raises(PayloadLost):
        store.get(key)


def test_a_job_whose_commit_may_have_happened_keeps_its_blobs(
    database: Engine, payloads: Payloads, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost_answer(*_: object) -> None:
        raise RuntimeError("the connection broke at the commit")

    monkeypatch.setattr(database.dialect, "do_commit", lost_answer)
    seen: list[UUID] = []
    monkeypatch.setattr(ids, "new", lambda real=ids.new: seen.append(real()) or seen[-1])
    with pytest.raises(RuntimeError, match="broke at the commit"):
        post(database, payloads, "x" * 100_000)
    raw = b'"' + b"x" * 100_000 + b'"'
    key = key_of(Payloads(store).stash("in", seen[0]).add(0, raw))
    assert store.get(key) == raw


def test_deleting_a_job_deletes_its_payloads_alone(database: Engine, payloads: Payloads) -> None:
    gone, kept = post(database, payloads, LARGE), post(database, payloads, LARGE)
    run(database, payloads)
    payloads.delete_job(gone)
    seen = item(database, payloads, gone, 0)
    assert (seen["input"], seen["output"], seen["outcome"]) == (None, None, "failed")
    assert seen["error"]["code"] == "payload_lost"
    assert item(database, payloads, kept, 0)["output"] == LARGE


def test_payloads_of_a_week_have_a_prefix_of_their_own() -> None:
    job = UUID(int=1_795_000_000_000 << 80)  # Wednesday, 18 November 2026
    assert job_prefix("in", job).startswith("in/20261116/")


# -- blobs that fail


def key_of(stored: str) -> str:
    """Key of the blob of a payload."""
    return stored.split()[0][1:]


@pytest.mark.parametrize("code", ["payload_lost", "payload_corrupt"])
def test_an_input_that_can_not_be_read_fails_its_item_alone(
    database: Engine, payloads: Payloads, store: BlobStore, code: str
) -> None:
    job = post(database, payloads, "a", LARGE, "c")
    key = key_of(texts(database, "items", "input")[1])
    if code == "payload_lost":
        store.delete_prefix(key.rpartition("/")[0] + "/")
    else:
        store.put(key, b'"another"')
    run(database, payloads)
    found = read(database, payloads, job)
    assert [line["outcome"] for line in found] == ["succeeded", "failed", "succeeded"]
    assert found[1]["error"]["code"] == code
    assert item(database, payloads, job, 1)["input"] is None


@pytest.mark.parametrize("code", ["payload_lost", "payload_corrupt"])
def test_an_output_that_can_not_be_read_is_no_output_and_the_others_are_delivered(
    database: Engine, payloads: Payloads, store: BlobStore, code: str
) -> None:
    job = post(database, payloads, "a", LARGE, "c", LARGE + "!")
    run(database, payloads)
    key = key_of(texts(database, "results", "output")[1])
    raw = Payloads(store).read(texts(database, "results", "output")[3])
    if code == "payload_corrupt":
        store.put(key, raw[:-2] + b'?"')  # as long as it was
    else:
        payloads.delete_job(job)
        rest = Payloads(store).stash("out", job)
        rest.add(3, raw)
        rest.finish()
    found = read(database, payloads, job)
    assert [line["outcome"] for line in found] == ["succeeded", "failed", "succeeded", "succeeded"]
    assert (found[1]["output"], found[1]["error"]["code"]) == (None, code)
    assert [found[seq]["output"] for seq in (0, 2, 3)] == ["a", "c", LARGE + "!"]
    seen = item(database, payloads, job, 1)
    assert (seen["outcome"], seen["output"], seen["error"]["code"]) == ("failed", None, code)


class Away:
    """A store that can't be reached the first so many times."""

    def __init__(self, times: int, store: BlobStore) -> None:
        self.left, self._store = times, store

    def _fail(self) -> None:
        self.left -= 1
        if self.left >= 0:
            raise BlobStoreUnavailable("it is away")

    def put(self, key: str, data: bytes) -> None:
        self._fail()
        self._store.put(key, data)

    def get(self, key: str) -> bytes:
        self._fail()
        return self._store.get(key)

    def delete_prefix(self, prefix: str) -> None:
        self._fail()
        self._store.delete_prefix(prefix)


ON_ONE = pytest.mark.parametrize("blob_settings", ["file"], indirect=True)


@ON_ONE
def test_while_the_store_is_away_a_job_is_refused(database: Engine, store: BlobStore) -> None:
    with pytest.raises(BlobStoreUnavailable):
        post(database, Payloads(Away(99, store)), "a", LARGE)
    assert texts(database, "items", "input") == []


@ON_ONE
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_slice_whose_inputs_are_away_waits_or_goes_back_with_no_item_failed(
    database: Engine, payloads: Payloads, store: BlobStore, comes_back: bool
) -> None:
    job = post(database, payloads, "a", LARGE, "c")
    away = Payloads(Away(2 if comes_back else 99, store))
    [(in_flight, items)] = claim(database, away, float("inf") if comes_back else NEVER)
    if comes_back:
        assert items == [(0, "a"), (1, LARGE), (2, "c")]
        return
    assert (items, in_flight.finished, in_flight.outcomes) == ([], True, [])
    transact(database, settle.settle, [in_flight.lease], [])
    run(database, payloads)
    assert [line["outcome"] for line in read(database, payloads, job)] == ["succeeded"] * 3


@ON_ONE
def test_outputs_are_offered_again_while_the_store_is_away(
    database: Engine, payloads: Payloads, store: BlobStore
) -> None:
    post(database, payloads, LARGE, "b")
    [(in_flight, items)] = claim(database, payloads)
    in_flight.add([ItemOutcome(seq, 1, 0.5, None, value) for seq, value in items])
    results, _ = rows_of(in_flight, Limits())
    assert stash(Payloads(Away(99, store)), results, NEVER) is None
    stashed = stash(Payloads(Away(2, store)), results, float("inf"))
    assert stashed is not None
    assert stashed[1] is results[1]
    assert json.loads(payloads.read(stashed[0].output or "")) == LARGE


@ON_ONE
def test_a_reader_is_cut_off_visibly_while_the_store_is_away(
    database: Engine, payloads: Payloads, store: BlobStore
) -> None:
    job = post(database, payloads, "a", LARGE)
    run(database, payloads)
    with pytest.raises(BlobStoreUnavailable):
        read(database, Payloads(Away(99, store)), job)
    with pytest.raises(BlobStoreUnavailable, match="MILLRACE_BLOBS names none"):
        read(database, Payloads(), job)


def test_without_a_store_everything_stays_in_the_database(database: Engine, tmp_path: Path) -> None:
    job = post(database, Payloads(), LARGE)
    run(database, Payloads())
    [line] = read(database, Payloads(), job)
    assert line["output"] == LARGE
    assert texts(database, "results", "output")[0] == json.dumps(LARGE, ensure_ascii=False)
