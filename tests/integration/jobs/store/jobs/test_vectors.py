"""Results that are vectors: stored as bytes, read as JSON by each reader."""

from typing import Any
from uuid import UUID

import numpy as np
import orjson
import pytest
from sqlalchemy import Engine

from jobs import vectors
from jobs.blobs.lines import resolve_lines
from jobs.blobs.payloads import Payloads, resolve_row
from jobs.store.jobs import detail, read, verbs
from jobs.store.queue import settle
from jobs.store.queue.settle import Result
from tests.support.stores import store
from tests.support.stores.transactions import fetch, scalar, transact

ROWS = np.random.default_rng(0).standard_normal((2, 384), dtype=np.float32)
SHORT = np.array([0.5, -1.25], dtype=np.float16)
TEXT = '"no vector: \\"output\\":#6600"'
ERROR = '{"code":"engine_error","message":"broke"}'


def packed(row: Any) -> bytes:
    [only] = vectors.pack_all([row]) or []
    return only


@pytest.fixture
def job(database: Engine) -> UUID:
    """A job whose items ended as vectors, a text and a failure."""
    id = store.post(database, *"abcde")
    [lease] = store.claim(database)
    outputs = [packed(ROWS[0]), TEXT, packed(ROWS[1]), packed(SHORT), None]
    its = lease.job_id, lease.tenant
    rows = [
        Result(*its, seq, "succeeded", 1, None, None, output, None)
        if output
        else Result(*its, seq, "failed", 1, None, None, None, ERROR)
        for seq, output in enumerate(outputs)
    ]
    assert transact(database, settle.settle, [lease], rows) == 1
    return id


EXPECTED = [ROWS[0], orjson.loads(TEXT), ROWS[1], SHORT, None]


def assert_expected(outputs: list[Any]) -> None:
    for output, expected in zip(outputs, EXPECTED, strict=True):
        if isinstance(expected, np.ndarray):
            assert np.array(output, dtype=expected.dtype).tobytes() == expected.tobytes()
        else:
            assert output == expected


def test_lines_hold_the_numbers(database: Engine, job: UUID) -> None:
    body = b"".join(resolve_lines(Payloads(), store.result_chunks(database, job)))
    lines = [orjson.loads(line) for line in body.splitlines()]
    assert_expected([line["output"] for line in lines])
    assert [line["outcome"] for line in lines] == ["succeeded"] * 4 + ["failed"]


def test_an_export_and_an_item_hold_the_numbers(database: Engine, job: UUID) -> None:
    row = store.job(database, job)
    exported = Payloads().resolve_rows(
        {"output": one.output, "outcome": one.outcome} for one in read.result_rows(database, row)
    )
    assert_expected([orjson.loads(one["output"] or "null") for one in exported])
    alone = [transact(database, detail.item, "default", job, seq) for seq in range(5)]
    shown = [resolve_row(Payloads(), {"output": one.output}) for one in alone]
    assert_expected([orjson.loads(one["output"] or "null") for one in shown])


def test_a_list_shows_the_first_numbers(database: Engine, job: UUID) -> None:
    items = transact(database, detail.items, "default", job, limit=9)
    first = np.array(orjson.loads(vectors.as_json(items[0].output)), dtype=np.float32)
    assert first.tobytes() == ROWS[0][: len(first)].tobytes()
    assert len(first) == 24
    assert items[1].output == TEXT
    assert orjson.loads(vectors.as_json(items[3].output)) == [0.5, -1.25]


def test_a_vector_counts_its_bytes(database: Engine, job: UUID) -> None:
    expected = 2 * (1 + 4 * 384) + (1 + 2 * 2) + len(TEXT) + len(ERROR)
    assert store.job(database, job).output_bytes == expected


def test_a_retry_keeps_vectors_and_archives_what_failed(database: Engine, job: UUID) -> None:
    transact(database, verbs.retry, job)
    [lease] = store.claim(database)
    assert transact(database, settle.settle, [lease], store.results(lease, 4)) == 1
    body = b"".join(resolve_lines(Payloads(), store.result_chunks(database, job)))
    outputs = [orjson.loads(line)["output"] for line in body.splitlines()]
    assert outputs.pop() == "x"
    assert_expected([*outputs, None])
    assert fetch(database, "SELECT seq, error, vector FROM results_archive") == [(4, ERROR, None)]
    assert scalar(database, "SELECT count(*) FROM results WHERE vector IS NOT NULL") == 3
