"""Results as Arrow, Parquet and arrays: the same values as the lines of NDJSON."""

import io
from typing import Any

import numpy as np
import orjson
import pyarrow.ipc
import pytest
from pyarrow import parquet

from jobs import vectors
from jobs.store.queue import claim, settle
from jobs.store.queue.settle import Result
from jobs.views.result_tables import MEDIA_TYPES
from millrace import Client, ConflictError
from millrace.sync import results as client_results
from tests.integration.api.conftest import Jobs, People
from tests.support.stores import store
from tests.support.stores.transactions import transact

ROWS = np.random.default_rng(0).standard_normal((5, 8), dtype=np.float32)


def ended(people: People, outputs: list[Any], of: int = 0) -> str:
    """A job of acme's whose items ended with these outputs, None: failed; the rest goes on."""
    jobs = Jobs(people.database)
    id = jobs.post(items=of or len(outputs))
    leases = transact(people.database, claim.claim, 1, {store.ECHO: 1000}, 60)
    its = jobs.uuid(id), "acme"
    rows = [
        Result(*its, seq, "failed", 1, None, None, None, '{"code":"x","message":"y"}')
        if output is None
        else Result(*its, seq, "succeeded", 1, None, None, output, None, truncated=seq % 2)
        for seq, output in enumerate(outputs)
    ]
    transact(people.database, settle.settle, leases, rows)
    return id


def packed(rows: Any) -> list[Any]:
    return list(vectors.pack_all([*rows]) or [])


def read(people: People, id: str, **query: Any) -> Any:
    response = people.ask("acme", f"/jobs/{id}/results", **query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == MEDIA_TYPES[query["format"]]
    return io.BytesIO(response.content)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_a_table_has_what_the_lines_have(people: People, kind: str) -> None:
    id = ended(people, [*packed(ROWS), '{"a":1}', None, *packed(ROWS[:1].astype(np.float16))])
    body = read(people, id, format=kind)
    table = (
        pyarrow.ipc.open_stream(body).read_all() if kind == "arrow" else parquet.read_table(body)
    )
    lines = people.ask("acme", f"/jobs/{id}/results").text.splitlines()
    assert table.num_rows == len(lines) == 8
    for row, line in zip(table.to_pylist(), map(orjson.loads, lines), strict=True):
        output = row["vector"] or orjson.loads(row["output"] or "null")
        kind = np.float16 if row["seq"] == 7 else np.float32
        if row["vector"]:
            expected = np.array(line["output"], dtype=kind).tolist()
            assert (output, row["output"]) == (expected, None)
        else:
            assert output == line["output"]
        assert orjson.loads(row["error"] or "null") == line["error"]
        for name in ("seq", "custom_id", "outcome", "attempts"):
            assert row[name] == line[name]
        cut = {"truncated": row["truncated"]} if row["seq"] in (1, 3, 5, 7) else {}
        assert line["usage"] == {"characters": row["units"], **cut}


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_an_array_has_a_row_an_item(people: People, kind: Any) -> None:
    rows = ROWS.astype(kind)
    id = ended(people, packed(rows))
    for query, expected in (({}, rows), ({"after": 1, "limit": 2}, rows[2:4])):
        array = np.load(read(people, id, format="npy", **query))
        assert array.dtype == kind
        assert np.array_equal(array, expected)


def test_an_array_of_no_results_is_empty(people: People) -> None:
    id = ended(people, [], of=3)
    response = people.ask("acme", f"/jobs/{id}/results", format="npy")
    assert np.load(io.BytesIO(response.content)).shape == (0, 0)
    assert response.headers["x-complete"] == "false"


@pytest.mark.parametrize(
    ("outputs", "query", "words"),
    [
        (["1"], {}, "item 0 (succeeded) is no vector"),
        ([*packed(ROWS), None], {}, "1 items have no output"),
        (packed(ROWS), {"gaps": True}, "gaps"),
        (packed(ROWS), {"outcome": "succeeded"}, "outcome"),
    ],
)
def test_what_is_no_array_is_refused(
    people: People, outputs: list[Any], query: dict[str, Any], words: str
) -> None:
    id = ended(people, outputs)
    response = people.ask("acme", f"/jobs/{id}/results", format="npy", **query)
    assert response.status_code == 409
    assert words in response.json()["detail"]


def test_an_array_breaks_off_at_a_vector_of_another_length(people: People) -> None:
    id = ended(people, [*packed(ROWS), *packed(ROWS[:1, :3])])
    with pytest.raises(ValueError, match="EOF"):
        np.load(io.BytesIO(people.ask("acme", f"/jobs/{id}/results", format="npy").content))


def test_a_media_type_asks_for_its_format(people: People) -> None:
    id = ended(people, packed(ROWS))
    for accept, expected in (
        (MEDIA_TYPES["npy"], MEDIA_TYPES["npy"]),
        (f"text/html, {MEDIA_TYPES['arrow']};q=0.9, */*", MEDIA_TYPES["arrow"]),
        ("*/*", "application/x-ndjson"),
    ):
        answer = people.send("acme", "GET", f"/jobs/{id}/results", headers={"Accept": accept})
        assert answer.headers["content-type"].partition(";")[0] == expected
        # gzip takes time, and makes vectors no smaller
        assert ("content-encoding" in answer.headers) == (accept == "*/*")


def test_an_api_without_pyarrow_says_what_to_install(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = ended(people, packed(ROWS))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    response = people.ask("acme", f"/jobs/{id}/results", format="arrow")
    assert (response.status_code, response.json()["code"]) == (503, "not_configured")
    assert "millrace[parquet]" in response.json()["detail"]


@pytest.mark.filterwarnings("ignore:You should not use the 'timeout'")
def test_the_client_reads_pages(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_results, "_PAGE_RESULTS", 2)
    whole, failed = ended(people, packed(ROWS)), ended(people, ["1", None, "2"])
    http = people.client
    with Client(str(http.base_url), api_key=people.keys["acme"], http_client=http) as client:
        assert np.array_equal(client.jobs.results(whole).to_numpy(), ROWS)
        table = client.jobs.results(whole).to_arrow()
        assert np.array_equal(np.array(table["vector"].to_pylist(), np.float32), ROWS)
        outputs = client.jobs.results(failed).to_arrow()["output"].to_pylist()
        assert outputs == ["1", None, "2"]
        with pytest.raises(ConflictError, match="no output"):
            client.jobs.results(failed).to_numpy()
