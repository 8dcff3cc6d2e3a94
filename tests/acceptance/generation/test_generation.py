"""A model that generates, on a whole platform: jobs of chats, calls beside them, streams."""

from typing import Any

import httpx

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.clients import chat
from tests.support.models.entries import model
from tests.support.platforms import GENERATING
from tests.support.wait import eventually

MODELS = model("talk", "echo_chat", target_ttft_ms=2000, step_ms=2, sequences=16) + model(
    "single", "echo_chat", step_ms=10, sequences=1, context_tokens=65536, blocks=65536
)


PLATFORM = GENERATING


def text_of(output: dict[str, Any]) -> str:
    [choice] = output["choices"]
    text: str = choice["message"]["content"]
    return text


def infer(platform: Platform, value: Any, model: str = "talk") -> httpx.Response:
    return httpx.post(f"{platform.url}/infer", json={"model": model, "input": value}, timeout=60)


def test_a_job_of_chats_has_a_completion_for_each(client: Client) -> None:
    texts = [f"the answer to question {n} is short" for n in range(200)]
    job = client.jobs.submit("talk", map(chat, texts))
    assert client.jobs.wait(job.id)["counts"]["succeeded"] == 200
    outputs = list(client.jobs.results(job.id).outputs())
    assert [text_of(output) for output in outputs] == texts
    assert {output["usage"]["completion_tokens"] for output in outputs} == {7}


def test_a_call_has_the_same_answer_and_says_when_its_first_token_came(platform: Platform) -> None:
    answer = infer(platform, chat("a short answer"))
    assert answer.status_code == 200, answer.text
    assert text_of(answer.json()["output"]) == "a short answer"
    timing = answer.json()["timing"]
    assert 0 < timing["ttft_ms"] <= timing["total_ms"]


def test_calls_are_answered_beside_a_job_that_fills_all_places(
    platform: Platform, client: Client
) -> None:
    endless = [chat("go on", min_tokens=3000, max_tokens=3000) for _ in range(64)]
    job = client.jobs.submit("talk", endless)
    eventually(lambda: client.jobs.get(job["id"])["state"] == "running")
    for n in range(5):
        assert text_of(infer(platform, chat(f"call {n}")).json()["output"]) == f"call {n}"
    assert client.jobs.get(job["id"])["state"] == "running"
    client.request("POST", f"/jobs/{job['id']}/cancel")
    eventually(lambda: client.jobs.get(job["id"])["state"] == "cancelled")


def test_an_input_that_isnt_supported_is_refused_with_its_field(platform: Platform) -> None:
    answer = infer(platform, chat("a", temperature=9))
    assert answer.status_code == 422
    assert "temperature" in answer.text


def test_a_client_that_leaves_frees_its_place(platform: Platform) -> None:
    endless = {
        "model": "single",
        "input": chat("go on", min_tokens=60_000, max_tokens=60_000),
        "stream": True,
    }
    with httpx.stream("POST", f"{platform.url}/infer", json=endless, timeout=60) as stream:
        assert stream.status_code == 200
        assert "go" in next(stream.iter_text())
    body = {"model": "single", "input": chat("next"), "timeout_ms": 120_000}
    answer = httpx.post(f"{platform.url}/infer", json=body)  # the first would take ten minutes
    assert text_of(answer.json()["output"]) == "next"
