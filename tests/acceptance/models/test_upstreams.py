"""Models that someone else serves, through a whole platform: slow, full, broken, away and back."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import httpx
import pytest

from millrace import Client
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support.children import kill
from tests.support.clients import chat, infer
from tests.support.jobs import assert_outputs, completed, finish, run, scalar_of
from tests.support.models.entries import model
from tests.support.pace import lease_s
from tests.support.platforms import Platforms, spec
from tests.support.servers.receiver import Received
from tests.support.servers.upstream import Answer, Upstream, held_for, serving, shout
from tests.support.wait import PATIENCE_S, eventually

pytestmark = pytest.mark.nightly

SHOUT: Any = {
    "target_ms": 5000, "body": {"text": "$input"}, "output": "/results/0/text", "timeout_s": 30,
    "concurrency": {"max": 16}, "breaker": {"failures": 5, "open_s": 0.3},
}  # fmt: skip
THEIRS: Any = {"target_ms": 5000, "model": "theirs"}


def models(url: str, away: str) -> str:
    many = {"slice_items": 20, "backoff_ms": 100}
    few = {"slice_items": 20, "backoff_ms": 20, "max_attempts": 3}
    theirs = THEIRS | {"url": f"{url}/v1"}
    return (
        model("shout", "http", **SHOUT, url=f"{url}/shout", limits=many)
        + model("away", "http", **SHOUT, url=f"{away}/shout", limits=few)
        + model("chat", "openai", **theirs, api_key="env:UPSTREAM_KEY")
        + model("embed", "openai", **theirs, task="embedding", limits={"max_batch": 25})
    )


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with serving() as started:
        yield started


@pytest.fixture(autouse=True)
def as_usual(upstream: Upstream) -> Iterator[None]:
    upstream.received.clear()
    yield
    upstream.answer = shout


@pytest.fixture(scope="module")
def away_port() -> int:
    """Port of the upstream of "away", once a test starts it."""
    return free_port()


@pytest.fixture(scope="module")
def platform(platforms: Platforms, upstream: Upstream, away_port: int) -> Iterator[Platform]:
    away = f"http://127.0.0.1:{away_port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UPSTREAM_KEY", "sk-of-the-tests")
        with platforms.running(spec(models(upstream.url, away), lease_s=lease_s(3.0))) as started:
            yield started


def late(seconds: float, upstream: Upstream) -> Callable[[Received], Answer]:

    def answer(request: Received) -> Answer:
        held_for(seconds, upstream)
        return shout(request)

    return answer


def assert_shouted(found: list[Any], texts: list[str]) -> None:
    assert_outputs(found, [text.upper() for text in texts])


def test_a_batch_over_an_upstream_that_varies_is_answered_in_order(
    platform: Platform, client: Client, upstream: Upstream
) -> None:
    random = Random(3)

    def answer(request: Received) -> Answer:
        held_for(min(0.4, random.lognormvariate(-3, 0.7)), upstream)
        return shout(request)

    upstream.answer = answer
    texts = [f"text {n}" for n in range(100)]
    assert_shouted(run(platform, client, "shout", texts), texts)
    assert len(upstream.received) == 100
    assert 4 < upstream.most_at_once <= 16


def test_each_item_has_the_status_that_the_upstream_gave_it(
    platform: Platform, client: Client, upstream: Upstream
) -> None:
    tried: dict[str, int] = {}

    def answer(request: Received) -> Answer:
        said = json.loads(request.body)["text"]
        tried[said] = tried.get(said, 0) + 1
        if said == "bad":
            return Answer({"error": {"message": "no such language"}}, 400)
        if said == "forbidden":
            return Answer(None, 403)
        if said == "limited" and tried[said] <= 2:
            return Answer(None, 429, {"Retry-After": "1"})
        if said == "flaky" and tried[said] <= 2:
            return Answer(None, 500)
        if said == "broken":
            return Answer(raw=b"{")
        return shout(request)

    upstream.answer = answer
    texts = ["good", "bad", "forbidden", "limited", "flaky", "broken", "end"]
    good, bad, forbidden, limited, flaky, broken, end = run(platform, client, "shout", texts)
    assert [line["output"] for line in (good, limited, flaky, end)] == [
        "GOOD", "LIMITED", "FLAKY", "END"
    ]  # fmt: skip
    assert bad["error"]["code"] == "invalid_input"
    assert bad["error"]["message"] == "upstream answered 400: no such language"
    assert "address, model or key" in forbidden["error"]["message"]
    assert "not JSON" in broken["error"]["message"]
    assert (limited["attempts"], flaky["attempts"]) == (2, 3)
    assert tried == dict.fromkeys(texts, 1) | {"limited": 3, "flaky": 3}


def test_an_upstream_with_room_for_few_is_not_flooded_and_nothing_fails(
    platform: Platform, client: Client, upstream: Upstream
) -> None:
    inside = threading.BoundedSemaphore(5)

    def answer(request: Received) -> Answer:
        if not inside.acquire(blocking=False):
            return Answer(None, 503, {"Retry-After": "1"})
        try:
            held_for(0.05, upstream)
            return shout(request)
        finally:
            inside.release()

    upstream.answer = answer
    texts = [f"text {n}" for n in range(200)]
    assert_shouted(run(platform, client, "shout", texts), texts)
    assert len(upstream.received) < 300, "it goes on asking for more than there is"


def test_a_job_outlasts_an_upstream_that_is_away(
    http: httpx.Client, client: Client, platform: Platform, away_port: int
) -> None:
    """Far longer than all the tries of an item: those that wait are not spent on it."""
    texts = [f"text {n}" for n in range(100)]
    job = client.jobs.submit("away", texts).id

    def refused() -> bool:
        answer = infer(http, "away", "x", timeout_ms=3000)
        if answer.status_code != 503:
            return False
        assert float(answer.headers["Retry-After"]) > 0
        return "left alone" in answer.text or answer.json()["code"] == "no_worker"

    eventually(refused)
    # More than open the breaker: it has let some try again, several times.
    tries = "SELECT count(*) FROM attempts WHERE job_id = :job"
    eventually(lambda: scalar_of(platform, job, tries) >= 12)
    eventually(refused)
    assert not completed(client, job)
    with serving(away_port):
        assert_shouted(finish(platform, client, job), texts)
        eventually(lambda: infer(http, "away", "call").status_code == 200)
    with serving(away_port) as again:
        eventually(lambda: infer(http, "away", "call").status_code == 200)
        assert again.received


def test_calls_come_through_and_their_failures_are_told(
    http: httpx.Client, upstream: Upstream
) -> None:
    answer = infer(http, "shout", "call")
    assert answer.status_code == 200, answer.text
    assert answer.json()["output"] == "CALL"
    upstream.answer = lambda request: Answer({"detail": "too odd"}, 422)
    refused = infer(http, "shout", "call")
    assert refused.status_code == 422
    assert "too odd" in refused.text
    upstream.answer = lambda request: Answer(None, 500)
    failed = infer(http, "shout", "call")
    assert failed.status_code == 503
    assert "Retry-After" in failed.headers


def test_calls_pass_a_job_that_waits_for_the_same_upstream(
    http: httpx.Client, client: Client, upstream: Upstream
) -> None:
    upstream.answer = late(0.1, upstream)
    job = client.jobs.submit("shout", [f"text {n}" for n in range(4000)]).id
    eventually(lambda: len(upstream.received) > 20)
    with ThreadPoolExecutor(4) as threads:
        calls = list(threads.map(lambda n: infer(http, "shout", f"call {n}"), range(8)))
    assert [call.status_code for call in calls] == [200] * 8
    assert not completed(client, job)
    http.post(f"/jobs/{job}/cancel")
    assert client.jobs.wait(job)["state"] == "cancelled"
    assert len(upstream.received) < 4000


def test_a_worker_killed_in_the_middle_loses_and_doubles_no_result(
    platform: Platform, client: Client, upstream: Upstream
) -> None:
    killed = threading.Event()

    def answer(request: Received) -> Answer:
        """Shouts; beyond a part of the job, once its worker is killed."""
        if len(upstream.received) > 100:
            killed.wait(PATIENCE_S)
        return shout(request)

    upstream.answer = answer
    texts = [f"text {n}" for n in range(300)]
    job = client.jobs.submit("shout", texts).id
    eventually(lambda: client.jobs.get(job)["counts"]["succeeded"] > 20)
    kill(platform)
    assert not completed(client, job)
    killed.set()
    assert_shouted(finish(platform, client, job), texts)


def test_a_worker_that_starts_asks_the_upstream_nothing(upstream: Upstream, http: Any) -> None:
    """The model is ready without a warm-up, which somebody would have to pay for."""
    assert http.get("/models/shout/ready").status_code == 200
    assert upstream.received == []


def test_conversations_are_answered_and_billed_by_the_tokens_that_were_used(
    platform: Platform, http: httpx.Client, client: Client, upstream: Upstream
) -> None:
    def answer(request: Received) -> Answer:
        assert request.headers["authorization"] == "Bearer sk-of-the-tests"
        said = json.loads(request.body)["messages"][0]["content"]
        message = {"role": "assistant", "content": said[::-1]}
        return Answer({"choices": [{"message": message}], "usage": {"total_tokens": 1234}})

    upstream.answer = answer
    inputs = [chat(f"hello {n}") for n in range(10)]
    found = run(platform, client, "chat", inputs)
    said = [line["output"]["choices"][0]["message"]["content"] for line in found]
    assert said == [f"hello {n}"[::-1] for n in range(10)]
    assert {json.dumps(line["usage"]) for line in found} == {'{"tokens": 1234}'}
    assert infer(http, "chat", inputs[0]).json()["usage"] == {"tokens": 1234}


def test_texts_to_embed_travel_together(
    platform: Platform, http: httpx.Client, client: Client, upstream: Upstream
) -> None:
    def answer(request: Received) -> Answer:
        texts = json.loads(request.body)["input"]
        if "" in texts:
            return Answer({"error": {"message": "empty"}}, 400)
        vectors = [[float(len(text)), 0.5] for text in texts]
        return Answer({"data": [{"index": n, "embedding": v} for n, v in enumerate(vectors)]})

    upstream.answer = answer
    texts = ["x" * (n + 1) for n in range(100)]
    texts[40] = ""
    found = run(platform, client, "embed", texts)
    vectors = [None if n == 40 else [float(n + 1), 0.5] for n in range(100)]
    assert [line["output"] for line in found] == vectors
    assert found[40]["error"]["code"] == "invalid_input"
    assert len(upstream.received) < 30
    assert infer(http, "embed", "four").json()["output"] == [4.0, 0.5]
