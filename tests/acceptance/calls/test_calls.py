"""Calls over HTTP: the answer, its timing, what they share with jobs, and routes: shares of sticky
users, pinned versions, shadows."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import Engine, text

from jobs import ids
from jobs.version import VERSION
from millrace import Client
from tests.support.cases import each
from tests.support.clients import infer
from tests.support.models.entries import model
from tests.support.platforms import OPEN
from tests.support.wait import eventually

PLATFORM = OPEN
MODELS = model("routed", "echo") + model("routed", "echo", version="2")
ROUTE = "/admin/models/routed/routes/*"
USERS = [f"user-{n}" for n in range(200)]


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
    raw = infer(http, "minilm", "a text", params={"normalize": False}).json()["output"]
    assert np.linalg.norm(raw) > 1.5
    cut = infer(http, "minilm", "a text of eight tokens", params={"truncate": 4}).json()
    whole = infer(http, "minilm", "a text").json()
    assert cut["usage"] == whole["usage"] | {"truncated": 4} == {"tokens": 4, "truncated": 4}
    assert cut["output"] == pytest.approx(whole["output"], abs=1e-5)


def test_concurrent_calls_share_launches(client: Client) -> None:
    def largest() -> int:
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda n: client.infer("batchstring", f"t{n}"), range(64)))
        assert [answer["output"] for answer in answers] == [f"T{n}" for n in range(64)]
        return max(answer["timing"]["batch_size"] for answer in answers)

    eventually(lambda: largest() > 4)


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


def test_a_call_that_cant_be_served_is_a_problem(http: httpx.Client) -> None:
    params: list[dict[str, Any]] = [{"no": 1}, {"normalize": "yes"}, {"truncate": 2}]
    params.append({"truncate": True})
    invalid: list[Any] = [{"model": "echo"}, {"input": "x"}, "text"]
    invalid += [
        {"model": "echo", "input": "x"} | more for more in ({"timeout_ms": 0}, {"extra": 0})
    ]
    invalid += [{"model": "minilm", "input": value} for value in (5, "a\0")]
    invalid += [{"model": "minilm", "input": "x", "params": one} for one in params]
    for body, case in each([{"model": "nobody", "input": "x"}, *invalid]):
        with case:
            answer = http.post("/infer", json=body)
            expected = (422, "invalid") if body in invalid else (404, "unknown_model")
            assert (answer.status_code, answer.json()["code"]) == expected
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
    for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
        answer = http.request(method, path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert http.get("/version").json() == {"version": VERSION}
    listed = http.get("/models").json()["data"]
    on_demand = {"efficientnet-lite0", "smollm2"}
    samples = {"minilm", "echo", "batchstring", "simple", "image-classifier"} | on_demand
    assert {model["name"] for model in listed} >= samples
    assert {model["name"] for model in listed if not model["ready"]} & samples == on_demand
    assert http.get("/models/minilm/ready").status_code == 200
    assert http.get("/models/nobody/ready").status_code == 404


def call(http: httpx.Client, user: str = "", model: str = "routed") -> str:
    headers = {"X-Millrace-User": user} if user else {}
    answer = http.post("/infer", json={"model": model, "input": "hi"}, headers=headers)
    assert answer.status_code == 200, answer.text
    version: str = answer.json()["version"]
    assert answer.headers["X-Millrace-Model"] == f"routed@{version}"
    return version


def put(http: httpx.Client, first: float, second: float, **more: Any) -> None:
    shares = {"1": first, "2": second}
    splits = [{"version": version, "percent": percent} for version, percent in shares.items()]
    http.put(ROUTE, json={"splits": splits, **more}).raise_for_status()


def test_a_ramp_takes_no_user_back_and_a_pinned_version_beats_it(
    http: httpx.Client, client: Client
) -> None:
    eventually(lambda: call(http) == "2")  # the newest
    put(http, 100, 0, sticky="user")
    eventually(lambda: {call(http) for _ in range(5)} == {"1"})
    put(http, 70, 30, sticky="user")
    eventually(lambda: len({call(http, user) for user in USERS[:40]}) == 2)
    moved = {user for user in USERS if call(http, user) == "2"}
    assert 0.15 < len(moved) / len(USERS) < 0.45
    put(http, 40, 60, sticky="user")
    eventually(lambda: sum(call(http, user) == "2" for user in USERS) > len(moved))
    assert {call(http, user) for user in moved} == {"2"}
    assert {call(http, user, "routed@1") for user in USERS[:20]} == {"1"}
    assert client.request("DELETE", ROUTE) is None
    eventually(lambda: Counter(call(http, user) for user in USERS[:20]) == {"2": 20})


def test_a_shadows_answers_are_compared_and_dropped(http: httpx.Client) -> None:
    put(http, 100, 0, shadow={"version": "2", "percent": 100})
    eventually(lambda: call(http) == "1")

    def compared() -> bool:
        assert call(http) == "1"
        equal = 'shadow_calls_total{model="routed@1",outcome="equal",shadow="routed@2"}'
        return f"millrace_{equal}" in http.get("/metrics").text

    eventually(compared)
    assert http.delete(ROUTE).status_code == 204


def test_a_faulty_route_is_refused(http: httpx.Client) -> None:
    splits = [{"version": "1", "percent": 60}, {"version": "9", "percent": 50}]
    answer = http.put(ROUTE, json={"splits": splits})
    assert answer.status_code == 422
    assert "make 110" in answer.text
    assert "no active version '9'" in answer.text


def test_a_call_has_the_id_of_its_request(http: httpx.Client) -> None:
    response = http.post("/infer", json={"model": "echo", "input": "hello"})
    id = response.json()["id"]
    assert id.removeprefix("call_") == response.headers["x-request-id"].removeprefix("req_")
    assert id != http.post("/infer", json={"model": "echo", "input": "hello"}).json()["id"]
