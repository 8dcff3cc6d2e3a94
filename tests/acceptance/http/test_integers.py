"""Integers come back as they were sent; those that 64 bits don't hold are refused at every door."""

import json
from typing import Any

import httpx

from tests.support.cases import each
from tests.support.platforms import OPEN
from tests.support.wait import eventually

PLATFORM = OPEN
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
BIG = 2**64
KEPT = [2**64 - 1, -(2**63), 2**63, 2**53 + 1]
WHY = "send it as a text"
CHAT = {"messages": [{"role": "user", "content": "a"}]}


def test_integers_of_64_bits_come_back_from_calls_and_jobs(http: httpx.Client) -> None:
    called = http.post("/infer", json={"model": "echo", "input": {"ids": KEPT}}).json()
    assert called["output"] == {"ids": KEPT}
    lines = "".join(json.dumps(value) + "\n" for value in (*KEPT, {"input": {"ids": KEPT}}))
    sent = [
        http.post("/jobs", json={"model": "echo", "items": KEPT}),
        http.post("/jobs?model=echo", content=lines, headers=NDJSON),
    ]
    for answer in sent:
        id = answer.json()["id"]
        eventually(lambda id=id: http.get(f"/jobs/{id}").json()["state"] == "completed")
        found = [json.loads(line) for line in http.get(f"/jobs/{id}/results").text.splitlines()]
        assert [line["output"] for line in found][:4] == KEPT
        assert http.get(f"/jobs/{id}/items/0").json()["input"] == KEPT[0]
    assert found[4]["output"] == {"ids": KEPT}


def test_longer_ones_are_refused_with_their_place_at_every_door(http: httpx.Client) -> None:
    item = {"input": {"id": BIG}}
    message = {"custom_id": "a", "params": {"model": "m", "max_tokens": BIG, **CHAT}}
    tensor = {"name": "INPUT0", "datatype": "UINT64", "shape": [1, 1], "data": [BIG]}
    doors: list[tuple[str, dict[str, Any], list[Any]]] = [
        ("/infer", {"model": "echo", **item}, ["input", "id"]),
        ("/infer", {"model": "echo", "input": "x", "params": {"n": BIG}}, ["params", "n"]),
        ("/infer", {"model": "echo", "input": ["x" * 100_000, BIG]}, ["input", 1]),
        ("/jobs", {"model": "echo", "items": [BIG]}, ["items", 0]),
        ("/jobs", {"model": "echo", "items": ["x", item]}, ["items", 1, "input", "id"]),
        ("/jobs", {"model": "echo", "items": ["x" * 100_000, item]}, ["items", 1, "input", "id"]),
        ("/jobs", {"model": "echo", "items": ["x"], "params": {"n": BIG}}, ["params", "n"]),
        ("/v1/embeddings", {"model": "m", "input": [BIG]}, ["input", 0]),
        ("/v1/chat/completions", {"model": "m", "seed": BIG, **CHAT}, ["seed"]),
        ("/v1/completions", {"model": "m", "prompt": "a", "seed": BIG}, ["seed"]),
        ("/v1/responses", {"model": "m", "input": "a", "x": BIG}, ["x"]),
        ("/v1/messages", {"model": "m", "max_tokens": BIG, **CHAT}, ["max_tokens"]),
        ("/v1/messages/batches", {"requests": [message]}, ["requests", 0, "params", "max_tokens"]),
        ("/v2/models/echo/infer", {"inputs": [tensor]}, ["inputs", 0, "data", 0]),
    ]
    for (path, body, place), case in each(doors):
        with case:
            answer = http.post(path, json=body)
            assert answer.status_code in (400, 422), answer.text
            named = f"{'.'.join(map(str, place))} is an integer that 64 bits don't hold: {WHY}"
            assert named in answer.text
            if path in ("/infer", "/jobs"):
                assert [fault["loc"] for fault in answer.json()["errors"]] == [place]


def test_lines_that_hold_one_are_refused_with_their_number(http: httpx.Client) -> None:
    lines = f'"x"\n{BIG}\n{{"input": {{"id": {BIG}0}}}}\n'
    faults = [([], 2), (["input", "id"], 3)]
    answer = http.post("/jobs?model=echo", content=lines, headers=NDJSON)
    assert [(fault["loc"], fault["line"]) for fault in answer.json()["errors"]] == faults
    query = {"model": "echo", "params": json.dumps({"n": [BIG]})}
    answer = http.post("/jobs", params=query, content='"x"\n', headers=NDJSON)
    assert [fault["loc"] for fault in answer.json()["errors"]] == [["params", "n", 0]]

    coming = {"file": ("in.jsonl", lines.encode())}
    file = http.post("/v1/files", files=coming, data={"purpose": "batch"}).json()["id"]
    id = http.post("/jobs", json={"model": "echo", "input": {"file": file}}).json()["id"]
    eventually(lambda: http.get(f"/jobs/{id}").json()["state"] == "failed")
    errors = http.get(f"/jobs/{id}").json()["error"]["errors"]
    assert [(fault["loc"], fault["line"]) for fault in errors] == faults


def test_a_request_of_a_batch_that_holds_one_is_refused_with_its_line(http: httpx.Client) -> None:
    body = {"model": "echo", "seed": BIG, **CHAT}
    line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    coming = {"file": ("in.jsonl", json.dumps(line).encode())}
    file = http.post("/v1/files", files=coming, data={"purpose": "batch"}).json()["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    id = http.post("/v1/batches", json=asked).json()["id"]
    eventually(lambda: http.get(f"/v1/batches/{id}").json()["status"] == "failed")
    [fault] = http.get(f"/v1/batches/{id}").json()["errors"]["data"]
    assert (fault["param"], fault["line"], WHY in fault["message"]) == ("body.seed", 1, True)
