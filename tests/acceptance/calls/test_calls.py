"""Calls over HTTP: the answer, its timing, and what they share with jobs."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from sqlalchemy import Engine, text

from jobs import ids
from millrace import Client
from tests.support.platforms import OPEN
from tests.support.wait import eventually

PLATFORM = OPEN


def test_a_call_is_answered_with_its_timing(client: Client) -> None:
    answer = client.infer("echo", {"any": "json"})
    assert (answer["output"], answer["model"], answer["version"]) == ({"any": "json"}, "echo", "1")
    timing = answer["timing"]
    parts = [timing[f"{part}_ms"] for part in ("queue", "batch", "engine", "post")]
    assert all(part >= 0 for part in parts)
    assert sum(parts) <= timing["total_ms"]
    assert timing["batch_size"] == 1
    assert timing["flush"] in ("full", "deadline", "knee", "pace", "drain")


def test_an_embedding_is_a_list_of_floats_of_unit_length(client: Client) -> None:
    answer = client.infer("minilm", "how do I parse a JSON document")
    assert len(answer["output"]) == 384
    assert np.linalg.norm(answer["output"]) == pytest.approx(1, abs=1e-5)
    assert answer["usage"] == {"tokens": 11}


def test_parameters_change_the_computation(http: httpx.Client) -> None:
    body = {"model": "minilm", "input": "a text", "params": {"normalize": False}}
    raw = http.post("/infer", json=body).json()["output"]
    assert np.linalg.norm(raw) > 1.5


def test_a_text_is_cut_to_as_many_tokens_as_its_call_says(http: httpx.Client) -> None:
    body = {"model": "minilm", "input": "a text of eight tokens", "params": {"truncate": 4}}
    cut = http.post("/infer", json=body).json()
    whole = http.post("/infer", json={"model": "minilm", "input": "a text"}).json()
    assert cut["usage"] == whole["usage"] == {"tokens": 4}
    assert cut["output"] == pytest.approx(whole["output"], abs=1e-5)


def test_concurrent_calls_share_launches(client: Client) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: client.infer("batchstring", f"t{n}"), range(64)))
    assert [answer["output"] for answer in answers] == [f"T{n}" for n in range(64)]
    assert max(answer["timing"]["batch_size"] for answer in answers) > 4


def test_a_call_and_items_of_two_jobs_share_one_launch(client: Client, database: Engine) -> None:
    """A call and two jobs wait during one launch, and come together in the next."""

    def attempt() -> bool:
        with ThreadPoolExecutor(3) as pool:
            busy = [pool.submit(client.infer, "batchstring", "busy") for _ in range(2)]
            jobs = [client.jobs.submit("batchstring", ["x"]).id for _ in range(2)]
            answer = pool.submit(client.infer, "batchstring", "call")
            assert [client.jobs.wait(job)["state"] for job in jobs] == ["completed"] * 2
            assert answer.result()["output"] == "CALL"
            assert [b.result()["output"] for b in busy] == ["BUSY"] * 2
        with database.begin() as tx:
            return tx.scalar(SHARED, {"jobs": [ids.parse("job", job) for job in jobs]}) == 2

    eventually(attempt)


SHARED = text("""
    SELECT count(DISTINCT job_id) FROM results JOIN launches ON launches.id = launch_id
    WHERE calls > 0 AND job_id = ANY(CAST(:jobs AS uuid[])) GROUP BY launch_id
    ORDER BY 1 DESC LIMIT 1
""")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model": "echo"}, 422, "invalid"),
        ({"input": "x"}, 422, "invalid"),
        ({"model": "nobody", "input": "x"}, 404, "unknown_model"),
        ({"model": "minilm", "input": 5}, 422, "invalid"),
        ({"model": "minilm", "input": "a\0"}, 422, "invalid"),
        ({"model": "minilm", "input": "x", "params": {"no": 1}}, 422, "invalid"),
        ({"model": "minilm", "input": "x", "params": {"normalize": "yes"}}, 422, "invalid"),
        ({"model": "minilm", "input": "x", "params": {"truncate": 2}}, 422, "invalid"),
        ({"model": "minilm", "input": "x", "params": {"truncate": True}}, 422, "invalid"),
        ({"model": "echo", "input": "x", "timeout_ms": 0}, 422, "invalid"),
        ({"model": "echo", "input": "x", "extra": 0}, 422, "invalid"),
        ("text", 422, "invalid"),
    ],
)
def test_a_call_that_cant_be_served_is_a_problem(
    http: httpx.Client, body: object, status: int, code: str
) -> None:
    answer = http.post("/infer", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


def test_malformed_json_is_named(http: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    for raw in (b"{", b"", b"\xff", b'{"model": "echo", "input": "\\ud800"}', b"[" * 100_000):
        answer = http.post("/infer", content=raw, headers=headers)
        assert answer.status_code in (400, 422), raw[:20]
        assert answer.json()["detail"]


def test_health_and_models_say_what_is_ready(http: httpx.Client) -> None:
    assert http.get("/livez").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok"}
    listed = http.get("/models").json()["data"]
    on_demand = {"efficientnet-lite0", "smollm2"}
    samples = {"minilm", "echo", "batchstring", "simple", "image-classifier"} | on_demand
    assert {model["name"] for model in listed} >= samples
    assert {model["name"] for model in listed if not model["ready"]} & samples == on_demand
    assert http.get("/models/minilm/ready").status_code == 200
    assert http.get("/models/nobody/ready").status_code == 404
