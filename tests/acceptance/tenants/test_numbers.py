"""Figures that several routes show of the same work agree, to the last token."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import anthropic
import httpx
import openai
import pytest
import redis

from jobs.calls.redis import RedisLanes
from ops.supervisor.platform import Platform
from tests.support.clients import chat
from tests.support.extra_models import extra_models
from tests.support.models.entries import model
from tests.support.packages import anthropic_ended, openai_batch
from tests.support.platforms import CHATTING
from tests.support.servers.receiver import Received
from tests.support.servers.upstream import Answer, Upstream, serving

PLATFORM = CHATTING
PRICE = {"per_1k_input_tokens": 1, "per_1k_cached_tokens": 0.5, "per_1k_output_tokens": 1000}
OWN = '''
"""Answers as it is asked to: in text alone, with its own usage, without, or with neither."""


def predict(batch):
    return [ANSWERS[item["messages"][-1]["content"]] for item in batch]


def completion(**more):
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}}
    return {"choices": [{**choice, "finish_reason": "stop"}], **more}


USAGE = {"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35}
ANSWERS = {
    "text": "hi",
    "counted": completion(usage=USAGE | {"prompt_tokens_details": {"cached_tokens": 10}}),
    "silent": completion(usage=None),
    "no message": {"answer": 42},
    "no number": [1, None],
}
'''
FILES = {"own_usage.py": OWN, "rows.py": 'ROWS = {"a": [0.5], "b": "b", "c": [1e300]}\n'
         "predict = lambda batch: [ROWS[text] for text in batch]\n"}  # fmt: skip
MODELS = model("own", "python", task="chat", file="own_usage.py", price=PRICE)
MODELS += model("rows", "python", task="embedding", file="rows.py")
THEIR_USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 80,
    "total_tokens": 200,
    "prompt_tokens_details": {"cached_tokens": 20},
}
ALL = "/v1/chat/completions"


def answered(request: Received) -> Answer:
    """Counts tokens, unless it is told to say nothing of them."""
    said = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    usage = None if b"silent" in request.body else THEIR_USAGE
    return Answer({"object": "chat.completion", "choices": [said], "usage": usage})


@pytest.fixture(scope="module")
def theirs(platform: Platform) -> Iterator[str]:
    with serving() as upstream:
        upstream.answer = answered
        with extra_models(platform, _entry(upstream)):
            yield "theirs"


def _entry(upstream: Upstream) -> str:
    url = f"{upstream.url}/v1"
    return model("theirs", "openai", url=url, model="x", target_ms=60_000, price=PRICE)


def billed(http: httpx.Client, model: str) -> Counter[str]:
    """Figures of the ledger about a model's items."""
    found = http.get("/usage", params={"by": "model,kind"}).raise_for_status().json()["data"]
    for row in found:
        if (row["model"], row["kind"]) == (model, "items"):
            units = row["units"].get("tokens", 0)
            return Counter(**row["tokens"], units=units, amount=float(row["amount"]))
    return Counter()


def since(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """Tokens that were billed meanwhile."""
    return {name: after[name] - before[name] for name in ("input", "cached", "output")}


def sums(usages: list[Mapping[str, Any]]) -> dict[str, int]:
    """Tokens of lines, in the words of the ledger."""
    details = [one.get("prompt_tokens_details") or {} for one in usages]
    return {
        "input": sum(one["prompt_tokens"] for one in usages),
        "cached": sum(one.get("cached_tokens", 0) for one in details),
        "output": sum(one["completion_tokens"] for one in usages),
    }


def newest(client: openai.OpenAI) -> Any:
    return client.batches.list(limit=1).data[0]


def assert_counts(http: httpx.Client, batch: Any, good: list[Any], bad: list[Any]) -> None:
    """Compares the counts of a batch, of its job and of its manifest with its lines."""
    job = http.get(f"/jobs/{batch.id}").raise_for_status().json()
    expected = (len(good) + len(bad), len(good), len(bad))
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == expected
    for found in (job["counts"], job["output"]["manifest"]["counts"]):
        assert (found["total"], found["succeeded"], found["failed"]) == expected


def assert_usage(batch: Any, lines: list[Any]) -> dict[str, int]:
    tokens = sums([line["response"]["body"].get("usage") or NONE for line in lines])
    usage = batch.usage
    found = usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens
    assert found == tuple(tokens.values())
    assert usage.total_tokens == tokens["input"] + tokens["output"]
    return tokens


NONE = {"prompt_tokens": 0, "completion_tokens": 0}


def test_an_upstreams_tokens_are_the_same_on_lines_batch_job_and_bill(
    openai_client: openai.OpenAI, http: httpx.Client, theirs: str
) -> None:
    before = billed(http, theirs)
    bodies = [{"model": theirs, **chat(text)} for text in ("a", "b", "c")]
    good, bad = openai_batch(openai_client, ALL, *bodies)
    batch = newest(openai_client)
    assert_counts(http, batch, good, bad)
    tokens = assert_usage(batch, good)
    assert tokens == {"input": 360, "cached": 60, "output": 240}
    after = billed(http, theirs)
    assert since(before, after) == tokens
    assert after["units"] - before["units"] == 600
    cost = (300 * 1 + 60 * 0.5 + 240 * 1000) / 1000
    assert after["amount"] - before["amount"] == pytest.approx(cost)
    manifest = http.get(f"/jobs/{batch.id}").json()["output"]["manifest"]
    assert (manifest["tokens"], manifest["usage"]) == (tokens, {"tokens": 600})


def test_a_line_without_usage_shows_what_is_billed(
    openai_client: openai.OpenAI, http: httpx.Client, theirs: str
) -> None:
    before = billed(http, theirs)["units"]
    bodies = [{"model": theirs, **chat(text)} for text in ("silent, please", "d")]
    good, _ = openai_batch(openai_client, ALL, *bodies)
    tokens = assert_usage(newest(openai_client), good)
    units = billed(http, theirs)["units"] - before
    assert tokens["input"] + tokens["output"] == units > 200


def test_calls_of_an_upstream_are_billed_by_its_tokens(
    openai_client: openai.OpenAI, store: redis.Redis, theirs: str
) -> None:
    said: Any = chat("e")["messages"]
    answer = openai_client.chat.completions.create(model=theirs, messages=said)
    assert answer.usage is not None
    counted = RedisLanes(store, f"{theirs}@1").usage(unfinished=True)
    found = Counter[str]()
    for one in counted:
        found["input"] += one.input_tokens
        found["cached"] += one.cached_tokens
        found["output"] += one.output_tokens
    assert found == sums([answer.usage.to_dict()]) == {"input": 120, "cached": 20, "output": 80}


def test_a_python_models_own_usage_is_kept(
    openai_client: openai.OpenAI, http: httpx.Client
) -> None:
    before = billed(http, "own")
    texts = ("text", "counted", "silent", "counted", "no such answer")
    good, bad = openai_batch(openai_client, ALL, *({"model": "own", **chat(t)} for t in texts))
    batch = newest(openai_client)
    assert_counts(http, batch, good, bad)
    assert (len(good), len(bad)) == (4, 1)
    tokens = assert_usage(batch, good)
    assert tokens == since(before, billed(http, "own")) == {"input": 60, "cached": 20, "output": 10}


def test_counts_of_messages_are_those_of_their_lines(
    claude: anthropic.Anthropic, http: httpx.Client
) -> None:
    before = billed(http, "own")
    texts = ("text", "no message", "counted", "no number", "no such answer", "silent")
    asked: Any = {"model": "own", "max_tokens": 9}
    requests: Any = [
        {"custom_id": text.replace(" ", "-"), "params": asked | chat(text)} for text in texts
    ]
    batch = anthropic_ended(claude, claude.messages.batches.create(requests=requests).id)
    lines = list(claude.messages.batches.results(batch.id))
    kinds = Counter(line.result.type for line in lines)
    assert kinds == {"succeeded": 3, "errored": 3}
    counts = {name: n for name, n in batch.request_counts.to_dict().items() if n}
    assert counts == kinds
    job = http.get(f"/jobs/{batch.id}").json()["counts"]
    assert (job["succeeded"], job["failed"]) == (3, 3)
    said: list[Any] = [line.result for line in lines if line.result.type == "succeeded"]
    usages = [one.message.usage for one in said]
    assert since(before, billed(http, "own")) == {
        "input": sum(one.input_tokens + one.cache_read_input_tokens for one in usages),
        "cached": sum(one.cache_read_input_tokens for one in usages),
        "output": sum(one.output_tokens for one in usages),
    }


def test_what_is_no_vector_is_counted_as_its_line_says(
    openai_client: openai.OpenAI, http: httpx.Client
) -> None:
    for format in ("float", "base64"):
        bodies = [{"model": "rows", "input": it, "encoding_format": format} for it in "abc"]
        good, bad = openai_batch(openai_client, "/v1/embeddings", *bodies)
        assert_counts(http, newest(openai_client), good, bad)
        assert (len(good), len(bad)) == (1, 2)
