"""Values and texts that can't be written down again: refused with their place, at every route."""

from typing import Any

import httpx
import pytest

from tests.support.models.entries import model
from tests.support.platforms import OPEN
from tests.support.wait import eventually

MODELS = model(
    "up",
    "http",
    url="http://127.0.0.1:9/",
    body={"text": "$input", "all": "$params"},
    output="/text",
)
PLATFORM = OPEN
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
DEEP = '{"a": ' + "[" * 300 + "]" * 300 + "}"
PARAMS = {"surrogate": '{"a": "\\ud800"}', "name": '{"\\ud800": 1}', "deep": DEEP}


def places(answer: httpx.Response) -> list[list[Any]]:
    assert answer.status_code == 422, answer.text[:300]
    return [fault["loc"] for fault in answer.json()["errors"]]


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
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


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/jobs", '{"model": %s, "items": ["x"]}'),
        ("/infer", '{"model": %s, "input": "x"}'),
        ("/infer", '{"model": "simple", "input": {"INPUT0": {"datatype": %s, "shape": [1, 16]}}}'),
        (
            "/v2/models/simple/infer",
            '{"inputs": [{"name": "INPUT0", "datatype": %s, "shape": [1, 16], "data": [1]}]}',
        ),
        (
            "/v1/messages/batches",
            '{"requests": [{"custom_id": "a", "params": {"model": "up", "max_tokens": 1,'
            ' "messages": [{"role": "user", "content": [{"type": %s}]}]}}]}',
        ),
    ],
)
def test_deep_nesting_where_a_word_belongs_is_the_clients_fault(
    http: httpx.Client, path: str, body: str
) -> None:
    answer = http.post(path, content=body % NESTED, headers=JSON)
    assert 400 <= answer.status_code < 500, answer.text[:300]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("POST", "/infer", '{"model": "echo", "input": "x"}'),
        ("POST", "/jobs", '{"model": "echo", "items": ["x"]}'),
        ("POST", "/v1/embeddings", '{"model": "echo", "input": "x"}'),
        ("POST", "/v1/batches", '{"endpoint": "/v1/embeddings"}'),
        ("POST", "/v1/messages/batches", '{"requests": []}'),
        ("POST", "/v2/models/echo/infer", '{"inputs": []}'),
        ("POST", "/v2/repository/index", '{"ready": true}'),
        ("POST", "/keys", '{"tenant": "a"}'),
        ("PUT", "/tenants/default/limits", '{"data": []}'),
    ],
)
def test_json_in_another_encoding_is_malformed(
    http: httpx.Client, method: str, path: str, text: str, encoding: str
) -> None:
    answer = http.request(method, path, content=text.encode(encoding), headers=JSON)
    assert answer.status_code == 400, answer.text


def test_lines_in_another_encoding_are_malformed(http: httpx.Client) -> None:
    for encoding in ("utf-8-sig", "utf-16"):
        answer = http.post("/jobs?model=echo", content='"x"'.encode(encoding), headers=NDJSON)
        assert places(answer) == [[]]
