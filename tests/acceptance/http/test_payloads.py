"""Payloads of a megabyte, compressed answers, readers that leave; values and texts that can't be
written down again, which are refused with their place at every route."""

import gzip
import json
import os
import socket
from itertools import product
from typing import Any

import httpx
import pytest

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.children import pid_of
from tests.support.models.entries import model
from tests.support.platforms import OPEN, database_of
from tests.support.stores.transactions import scalar
from tests.support.wait import eventually

MODELS = model("large", "echo", limits={"max_item_bytes": 4000000, "slice_items": 500})
TEMPLATE = {"body": {"text": "$input", "all": "$params"}, "output": "/text"}
MODELS += model("up", "http", url="http://127.0.0.1:9/", **TEMPLATE)
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
LARGE = "millrace " * 120_000
PLATFORM = OPEN


@pytest.fixture(scope="module")
def large_job(client: Client) -> str:
    """Large items between small ones, done."""
    values = [LARGE + str(n) if n % 3 == 1 else f"small {n}" for n in range(12)]
    job = client.jobs.wait(client.jobs.submit("large", values).id)
    assert job.counts.succeeded == 12
    return job.id


@pytest.fixture(scope="module")
def long_job(client: Client) -> str:
    """More bytes than the buffers of all sockets on the way."""
    return client.jobs.wait(client.jobs.submit("large", ["x" * 5000] * 8000).id).id


def test_items_of_a_megabyte_come_back_from_the_folder_under_home(
    client: Client, http: httpx.Client, platform: Platform, large_job: str
) -> None:
    found = list(client.jobs.results(large_job, wait=False))
    assert [line["seq"] for line in found] == list(range(12))
    for seq, line in enumerate(found):
        value = LARGE + str(seq) if seq % 3 == 1 else f"small {seq}"
        assert (line["output"], line["outcome"]) == (value, "succeeded")
    item = http.get(f"/jobs/{large_job}/items/4").json()
    assert item["input"] == item["output"] == LARGE + "4"
    paths = (platform.settings.home / "blobs").rglob("*/[0-9]*-*")
    large = [path for path in paths if path.is_file() and path.stat().st_size > 1_000_000]
    assert len(large) >= 8  # other modules may have left some


@pytest.mark.parametrize("asked", ["gzip", "identity", "gzip;q=0"])
def test_results_are_compressed_where_it_is_asked(
    http: httpx.Client, large_job: str, asked: str
) -> None:
    path, headers = f"/jobs/{large_job}/results", {"Accept-Encoding": asked}
    with http.stream("GET", path, headers=headers) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["vary"] == "Accept, Accept-Encoding"
    assert answer.headers.get("content-encoding") == ("gzip" if asked == "gzip" else None)
    if asked == "gzip":
        assert len(raw) < 200_000
        raw = gzip.decompress(raw)
    assert [json.loads(line)["seq"] for line in raw.splitlines()] == list(range(12))


def test_the_place_to_go_on_from_never_falls_back(http: httpx.Client, large_job: str) -> None:
    queries = ("", "&gaps=true", "&limit=5", "&outcome=failed")
    for (after, query), case in each(product((10, 11, 12, 2**31 - 1), queries)):
        with case:
            answer = http.get(f"/jobs/{large_job}/results?after={after}{query}")
            assert answer.headers["x-next-after"] == str(max(after, 11))
            assert answer.headers["x-complete"] == "true"


def test_readers_that_leave_in_mid_stream_leave_nothing_behind(
    http: httpx.Client, platform: Platform, long_job: str
) -> None:
    api = pid_of(platform, "api")
    assert http.get("/readyz").status_code == 200
    before = len(os.listdir(f"/proc/{api}/fd"))
    for encoding in ("identity", "gzip"):
        head = f"Host: localhost\r\nAccept-Encoding: {encoding}"
        get = f"GET /jobs/{long_job}/results HTTP/1.1\r\n{head}"
        for _ in range(15):
            with socket.create_connection((platform.settings.host, platform.settings.port)) as s:
                s.sendall(get.encode() + b"\r\n\r\n")
                assert s.recv(100).startswith(b"HTTP/1.1 200")
    # What is left may only be connections that the pool keeps.
    eventually(lambda: len(os.listdir(f"/proc/{api}/fd")) <= before + 10)
    idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    with database_of(platform) as database:
        eventually(lambda: scalar(database, idle) == 0)
    assert http.get("/readyz").status_code == 200


def test_a_stream_that_can_not_go_on_is_cut_off_visibly(
    http: httpx.Client, platform: Platform, large_job: str
) -> None:
    blobs = platform.settings.home / "blobs"
    elsewhere = blobs.rename(blobs.with_name("elsewhere"))
    blobs.touch()
    try:
        with pytest.raises(httpx.RemoteProtocolError):
            http.get(f"/jobs/{large_job}/results")
        item = http.get(f"/jobs/{large_job}/items/4")
        assert (item.status_code, item.json()["code"]) == (503, "blobs_away")
        refused = http.post("/jobs?model=large", content=json.dumps(LARGE), headers=NDJSON)
        assert (refused.status_code, refused.json()["code"]) == (503, "blobs_away")
        assert refused.headers["retry-after"] == "5"
    finally:
        blobs.unlink()
        elsewhere.rename(blobs)
    assert len(http.get(f"/jobs/{large_job}/results").text.splitlines()) == 12


DEEP = '{"a": ' + "[" * 300 + "]" * 300 + "}"
PARAMS = {"surrogate": '{"a": "\\ud800"}', "name": '{"\\ud800": 1}', "deep": DEEP}


def places(answer: httpx.Response) -> list[list[Any]]:
    assert answer.status_code == 422, answer.text[:300]
    return [fault["loc"] for fault in answer.json()["errors"]]


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_params_are_refused_with_their_place(http: httpx.Client, params: str) -> None:
    call = '{"model": "up", "input": "x", "params": ' + params + "}"
    assert places(http.post("/infer", content=call, headers=JSON)) == [["params"]]
    job = '{"model": "up", "items": ["x"], "params": ' + params + "}"
    assert places(http.post("/jobs", content=job, headers=JSON)) == [["params"]]
    item = '{"input": "x", "params": ' + params + "}"
    job = '{"model": "up", "items": ["x", ' + item + "]}"
    assert places(http.post("/jobs", content=job, headers=JSON)) == [["items", 1, "params"]]
    lines = f'"x"\n{item}\n'
    answer = http.post("/jobs?model=up", content=lines, headers=NDJSON)
    assert places(answer) == [["params"]]
    assert answer.json()["errors"][0]["line"] == 2
    coming = {"file": ("in.jsonl", lines.encode())}
    file = http.post("/v1/files", files=coming, data={"purpose": "batch"}).json()["id"]
    job = http.post("/jobs", json={"model": "up", "input": {"file": file}}).json()["id"]
    eventually(lambda: http.get(f"/jobs/{job}").json()["state"] == "failed")
    error = http.get(f"/jobs/{job}").json()["error"]
    assert [(fault["loc"], fault["line"]) for fault in error["errors"]] == [(["params"], 2)]


def test_an_unknown_key_that_can_not_be_written_is_refused(http: httpx.Client) -> None:
    for path, body in (
        ("/infer", '{"model": "up", "input": "x", "\\ud800": 1}'),
        ("/jobs", '{"model": "up", "items": ["x"], "\\ud800": 1}'),
        ("/jobs", '{"model": "up", "items": [{"input": 1, "\\ud800": 1}]}'),
    ):
        assert http.post(path, content=body, headers=JSON).status_code == 422, body


NESTED = "[" * 1000 + "]" * 1000
"""Levels that are parsed, and that `repr` doesn't write."""


def test_deep_nesting_where_a_word_belongs_is_the_clients_fault(http: httpx.Client) -> None:
    content = '"messages": [{"role": "user", "content": [{"type": %s}]}]'
    message = '{"custom_id": "a", "params": {"model": "up", "max_tokens": 1, ' + content + "}}"
    tensor = '{"name": "INPUT0", "datatype": %s, "shape": [1, 16], "data": [1]}'
    bodies = [
        ("/jobs", '{"model": %s, "items": ["x"]}'),
        ("/infer", '{"model": %s, "input": "x"}'),
        ("/infer", '{"model": "simple", "input": {"INPUT0": {"datatype": %s, "shape": [1, 16]}}}'),
        ("/v2/models/simple/infer", '{"inputs": [' + tensor + "]}"),
        ("/v1/messages/batches", '{"requests": [' + message + "]}"),
    ]
    for (path, body), case in each(bodies):
        with case:
            answer = http.post(path, content=body % NESTED, headers=JSON)
            assert 400 <= answer.status_code < 500, answer.text[:300]


def test_json_in_another_encoding_is_malformed(http: httpx.Client) -> None:
    bodies = {
        "POST /infer": '{"model": "echo", "input": "x"}',
        "POST /jobs": '{"model": "echo", "items": ["x"]}',
        "POST /v1/embeddings": '{"model": "echo", "input": "x"}',
        "POST /v1/batches": '{"endpoint": "/v1/embeddings"}',
        "POST /v1/messages/batches": '{"requests": []}',
        "POST /v2/models/echo/infer": '{"inputs": []}',
        "POST /v2/repository/index": '{"ready": true}',
        "POST /keys": '{"tenant": "a"}',
        "PUT /tenants/default/limits": '{"data": []}',
    }
    encodings = ("utf-8-sig", "utf-16", "utf-16-be", "utf-32")
    from_files = {("POST /jobs", "utf-8-sig")}  # where a byte order mark is left out
    for (request, encoding), case in each({*product(bodies, encodings)} - from_files):
        with case:
            content = bodies[request].encode(encoding)
            answer = http.request(*request.split(), content=content, headers=JSON)
            assert answer.status_code == 400, answer.text


def test_lines_in_another_encoding_are_malformed(http: httpx.Client) -> None:
    answer = http.post("/jobs?model=echo", content='"x"'.encode("utf-16"), headers=NDJSON)
    assert places(answer) == [[]]
