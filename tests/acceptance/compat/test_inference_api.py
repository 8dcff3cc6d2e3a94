"""POST /api/inference, as the batchstring service of interview books has it."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cases import each
from tests.support.models.entries import model
from tests.support.platforms import OPEN
from tests.support.wait import eventually

TERMS = {"task": "text", "target_ms": 400, "limits": {"max_batch": 2, "max_attempts": 1}}
MODELS = model("service", "python", **TERMS, file="service.py")
CODE = """
from jobs import clock
from workers.engines.protocol import InvalidInput

SAMPLES = ["a text"]

def predict(batch):
    clock.sleep(0.1)
    return [InvalidInput("no number") if text.isdigit() else text.upper() for text in batch]
"""
FILES = {"service.py": CODE}
PLATFORM = OPEN
PATH = "/api/inference"


def ask(http: httpx.Client, body: Any, **headers: str) -> httpx.Response:
    return http.post(PATH, json=body, headers=headers)


def answered(http: httpx.Client, body: Any, **headers: str) -> httpx.Response:
    """The answer, once none is predicted to be late."""
    return eventually(lambda: (a := ask(http, body, **headers)).is_success and a)  # type: ignore[return-value]


def test_a_text_goes_in_and_a_text_comes_out(http: httpx.Client) -> None:
    answer = answered(http, {"input": "hello"})
    body = answer.json()
    assert body.keys() == {"output", "request_id", "latency_ms"}
    assert body["output"] == "HELLO"
    assert body["request_id"] == answer.headers["X-Request-Id"]
    assert body["latency_ms"] >= 100


REFUSED = '{"input": "123"}'
LARGE = f'{{"input": "{"a" * 70_000}"}}'
WRONG = ["{", "{}", '{"input": 5}', '{"input": "a", "more": 1}', "[]", '"hello"', REFUSED, LARGE]


def test_what_can_not_be_answered_is_a_400(http: httpx.Client) -> None:
    for content, case in each(WRONG, name=lambda content: content[:40]):
        with case:
            answer = http.post(PATH, content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code == (413 if content == LARGE else 400)
            assert answer.json()["error"] == "INVALID_REQUEST"
            assert answer.json().keys() == {"error", "message", "request_id"}
            assert ("no number" in answer.json()["message"]) == (content == REFUSED)


def test_what_can_not_be_in_time_is_a_503_with_the_time_to_wait(http: httpx.Client) -> None:
    def refused() -> httpx.Response | None:
        with ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(lambda n: ask(http, {"input": f"text {n}"}), range(40)))
        assert {answer.status_code for answer in answers} <= {200, 503, 504}
        return next((answer for answer in answers if answer.status_code == 503), None)

    answer = eventually(refused)
    body = answer.json()
    assert body.keys() == {"error", "message", "request_id", "retry_after_ms"}
    assert body["error"] == "SERVICE_OVERLOADED"
    assert body["retry_after_ms"] > 0
    assert int(answer.headers["Retry-After"]) >= 1


def test_the_same_key_gets_the_same_answer(http: httpx.Client) -> None:
    first = answered(http, {"input": "once"}, **{"Idempotency-Key": "a"})
    again = ask(http, {"input": "once"}, **{"Idempotency-Key": "a"})
    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"


def test_a_limit_of_the_caller_is_a_429(http: httpx.Client) -> None:
    limit = {"data": [{"model": "service", "key": "", "requests_per_s": 1}]}
    http.put("/tenants/default/limits", json=limit).raise_for_status()
    try:
        answer = eventually(lambda: (a := ask(http, {"input": "a"})).status_code == 429 and a)
    finally:
        http.put("/tenants/default/limits", json={"data": []}).raise_for_status()
    assert answer.json()["error"] == "RATE_LIMITED"
    assert answer.json()["retry_after_ms"] > 0


@pytest.mark.nightly
def test_the_benchmark_prints_what_the_devices_did(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ops", "bench", "inference", "--quick"]
    done = subprocess.run(
        [*command, "--rate", "20", "--devices", "1"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "device 1: " in done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert {"p95_ms", "refused", "launches", "cpu_ms_per_call"} <= figures.keys()
    assert figures["mean_launch"] >= 1
    assert 0 < figures["device_used"] <= 1.1
