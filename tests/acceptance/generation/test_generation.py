"""A model that generates, on a whole platform: jobs of chats, calls beside them, and a host that is
full, which refuses calls with the time after which it has room."""

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.clients import chat
from tests.support.models.entries import model
from tests.support.platforms import GENERATING
from tests.support.wait import PATIENCE_S, eventually

# a prompt of 1,000 words takes 2 s; two long answers take all blocks; a hundred have places
TARGET = {"target_ttft_ms": 1500, "sequences": 100}
MODELS = model("talk", "echo_chat", target_ttft_ms=2000, step_ms=2, sequences=16)
MODELS += model("prompts", "echo_chat", **TARGET, step_ms=5.0, prefill_us=2000.0, blocks=65536)
MODELS += model("blocks", "echo_chat", **TARGET, step_ms=50.0, blocks=32, context_tokens=512)
PLATFORM = GENERATING


def text_of(output: dict[str, Any]) -> str:
    [choice] = output["choices"]
    text: str = choice["message"]["content"]
    return text


def ask(platform: Platform, model: str, value: Any) -> httpx.Response:
    body = {"model": model, "input": value}
    return httpx.post(f"{platform.url}/infer", json=body, timeout=PATIENCE_S)


def test_a_job_of_chats_has_a_completion_for_each(client: Client) -> None:
    texts = [f"the answer to question {n} is short" for n in range(200)]
    job = client.jobs.submit("talk", map(chat, texts))
    assert client.jobs.wait(job.id)["counts"]["succeeded"] == 200
    outputs = list(client.jobs.results(job.id).outputs())
    assert [text_of(output) for output in outputs] == texts
    assert {output["usage"]["completion_tokens"] for output in outputs} == {7}


def test_a_call_has_the_same_answer_and_says_when_its_first_token_came(platform: Platform) -> None:
    answer = ask(platform, "talk", chat("a short answer"))
    assert answer.status_code == 200, answer.text
    assert text_of(answer.json()["output"]) == "a short answer"
    timing = answer.json()["timing"]
    assert 0 < timing["ttft_ms"] <= timing["total_ms"]


BATCHED = "/v1/chat/completions/batch"


def test_conversations_of_one_request_are_choices_of_one_answer(
    http: httpx.Client, client: Client
) -> None:
    texts = ["a short answer", "another", "and a third one"]
    value = {"messages": [chat(text)["messages"] for text in texts], "n": 2, "max_tokens": 2,
             "return_token_ids": True}  # fmt: skip
    found = http.post(BATCHED, json={"model": "talk", **value}).json()
    alone = [
        http.post("/v1/chat/completions", json={"model": "talk", **value, "messages": one}).json()
        for one in value["messages"]
    ]
    choices = [(n, choice) for n, one in enumerate(alone) for choice in one["choices"]]
    assert found["choices"] == [
        choice
        | {"index": 2 * n + choice["index"], "prompt_token_ids": alone[n]["prompt_token_ids"]}
        for n, choice in choices
    ]
    assert (found["object"], found["model"]) == ("chat.completion", "talk")
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert found["usage"][name] == sum(one["usage"][name] for one in alone)
    job = client.jobs.submit("talk", [value])
    assert client.jobs.wait(job.id)["counts"]["succeeded"] == 1
    [output] = client.jobs.results(job.id).outputs()
    assert output["choices"] == found["choices"]


def test_conversations_that_cannot_be_answered_together_are_refused(http: httpx.Client) -> None:
    one, other = (chat(text)["messages"] for text in ("a", "b"))
    cases: list[tuple[str, dict[str, Any], str]] = [
        (BATCHED, {"messages": [one, other], "stream": True}, "stream"),
        (BATCHED, {"messages": one}, "messages"),
        (BATCHED, {"messages": []}, "messages"),
        (BATCHED, {}, "messages"),
        (BATCHED, {"messages": [one, [{"role": "x"}]]}, "messages[1][0].role"),
        (BATCHED, {"messages": [one, other], "n": 65}, "messages"),
        ("/v1/chat/completions", {"messages": [one, other]}, "messages[0]"),
        ("/tokenize", {"messages": [one, other]}, "messages[0]"),
    ]
    for (path, body, param), case in each(cases):
        with case:
            refused = http.post(path, json={"model": "talk", **body})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def test_calls_are_answered_beside_a_job_in_all_places(platform: Platform, client: Client) -> None:
    endless = [chat("go on", min_tokens=3000, max_tokens=3000) for _ in range(64)]
    job = client.jobs.submit("talk", endless)
    eventually(lambda: client.jobs.get(job["id"])["state"] == "running")
    for n in range(5):
        assert text_of(ask(platform, "talk", chat(f"call {n}")).json()["output"]) == f"call {n}"
    assert client.jobs.get(job["id"])["state"] == "running"
    client.request("POST", f"/jobs/{job['id']}/cancel")
    eventually(lambda: client.jobs.get(job["id"])["state"] == "cancelled")


def test_the_inference_api_is_off_where_no_model_is_named_for_it(platform: Platform) -> None:
    answer = httpx.post(f"{platform.url}/api/inference", json={"input": "hello"})
    assert (answer.status_code, answer.json()["error"]) == (404, "NOT_FOUND")
    assert "MILLRACE_INFERENCE_MODEL" in answer.json()["message"]


_WORDS = re.compile(r"would take about (\d+) ms; (\d+) ms are left for it")


def long(words: int, tokens: int) -> dict[str, Any]:
    return {"prompt": "word " * words, "max_tokens": tokens, "min_tokens": tokens}


SHORT = long(5, 5)


def refused(platform: Platform, model: str) -> httpx.Response | None:
    answer = ask(platform, model, SHORT)
    return answer if answer.status_code == 429 else None


def check(answer: httpx.Response, longest_ms: float) -> None:
    """Retry-After is the time until the answer would be in time, and up to half as much more."""
    problem = answer.json()
    assert problem["code"] == "predicted_wait", problem
    words = _WORDS.search(problem["detail"])
    assert words, problem
    needed_ms, left_ms = map(float, words.groups())
    assert left_ms < needed_ms < longest_ms
    over_ms = max(20.0, needed_ms - left_ms)
    assert over_ms - 2 <= float(answer.headers["Retry-After-Ms"]) <= 1.5 * over_ms + 2


def test_calls_whose_first_token_would_be_late_are_refused(platform: Platform) -> None:
    eventually(lambda: ask(platform, "prompts", SHORT).status_code == 200)
    with ThreadPoolExecutor(8) as pool:
        burst = list[Future[httpx.Response]]()

        def refused_beside_a_burst() -> httpx.Response | None:
            """Asks beside a new burst: a call that came before its prediction waits for all."""
            burst.extend(pool.submit(ask, platform, "prompts", long(1000, 5)) for _ in range(8))
            return refused(platform, "prompts")

        check(eventually(refused_beside_a_burst), 60_000)
        assert any(one.result().status_code == 200 for one in burst)
    eventually(lambda: ask(platform, "prompts", SHORT).status_code == 200)


@contextmanager
def begun(platform: Platform, body: dict[str, Any]) -> Iterator[httpx.Response]:
    """A stream, once it has a first token; or its refusal."""
    body = {**body, "stream": True, "timeout_ms": 600_000}
    with httpx.stream("POST", f"{platform.url}/infer", json=body, timeout=PATIENCE_S) as stream:
        lines = stream.iter_lines()  # which close the stream when they are forgotten
        if stream.status_code == 200:
            next(lines)
        else:
            stream.read()
        yield stream
        del lines


def test_calls_that_find_no_kv_blocks_are_refused(platform: Platform) -> None:
    """Few of 100 places are taken when the blocks are."""
    eventually(lambda: ask(platform, "blocks", SHORT).status_code == 200)
    with ExitStack() as streams:
        answers = list[httpx.Response]()

        def full() -> bool:
            answers.append(
                streams.enter_context(begun(platform, {"model": "blocks", "input": long(5, 400)}))
            )
            return answers[-1].status_code == 429

        eventually(full)
        assert len(answers) < 20
        check(answers[-1], 600_000)
        short = eventually(lambda: refused(platform, "blocks"))
        check(short, 600_000)
    eventually(lambda: ask(platform, "blocks", SHORT).status_code == 200)
