"""A model that another Millrace streams: two whole platforms, one behind the other."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from ops.supervisor.platform import Platform
from tests.support.clients import events
from tests.support.extra_models import extra_models
from tests.support.models.entries import model
from tests.support.platforms import GENERATING
from tests.support.wait import eventually

MODELS = model("echoes", "echo_chat", target_ttft_ms=60000, step_ms=5.0, context_tokens=4096)
PLATFORM = GENERATING
SAID = "one two three four five"
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def outer(platform: Platform) -> Iterator[Platform]:
    """The same platform: its models `relayed` and `unknown` are clients of its own API."""
    upstream: Any = {"url": f"{platform.url}/v1", "stream": True}
    asked = upstream | {"model": "echoes", "target_ttft_ms": 60_000, "timeout_s": 50}
    relayed = model("relayed", "openai", **asked)
    with extra_models(platform, relayed + model("unknown", "openai", **upstream, model="nobody")):
        yield platform


@pytest.fixture
def client(outer: Platform, openai_client: OpenAI) -> OpenAI:
    return openai_client


def said_by_user(said: str = SAID) -> list[Any]:
    return [{"role": "user", "content": said}]


def metric(platform: Platform, name: str) -> float:
    """Sum of a metric of the inner model, over the platform's processes."""
    pattern = re.compile(rf'^millrace_{name}\{{.*model="echoes@1".*\}} (\S+)$', re.MULTILINE)
    texts = [httpx.get(url).raise_for_status().text for url in platform.metrics]
    return sum(float(value) for value in pattern.findall("\n".join(texts)))


def test_the_native_stream_has_text_and_usage_of_the_inner_platform(outer: Platform) -> None:
    body = {"model": "relayed", "stream": True, "input": {"messages": said_by_user()}}
    text = httpx.post(f"{outer.url}/infer", json=body).raise_for_status().text
    *found, done = events(text.splitlines())
    assert "".join(one.data["text"] for one in found if one.name == "tokens") == SAID
    usage = done.data["usage"]
    assert (done.name, usage["prompt_tokens"], usage["completion_tokens"]) == ("done", 5, 5)


def test_openais_client_streams_and_gets_whole_answers(client: OpenAI) -> None:
    asked: Any = {"model": "relayed", "messages": said_by_user(), "max_tokens": 3}
    whole = client.chat.completions.create(**asked)
    *chunks, last = client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    choices = [chunk.choices[0] for chunk in chunks]
    assert "".join(one.delta.content or "" for one in choices) == "one two three"
    assert whole.choices[0].message.content == "one two three"
    assert choices[-1].finish_reason == whole.choices[0].finish_reason == "length"
    assert last.usage == whole.usage
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (5, 3)


def test_tokens_are_those_of_the_inner_platform(outer: Platform) -> None:
    asked: list[dict[str, Any]] = [
        {"prompt": SAID},
        {"messages": said_by_user(), "return_token_strs": True, "tools": [WEATHER]},
    ]
    for body in asked:
        inner, relayed = (
            httpx.post(f"{outer.url}/tokenize", json={**body, "model": name}).json()
            for name in ("echoes", "relayed")
        )
        assert relayed == inner
        assert (relayed["count"], relayed["max_model_len"]) == (5, 4096)
    ids = {"tokens": [7, 8]}
    url = f"{outer.url}/detokenize"
    assert httpx.post(url, json={**ids, "model": "relayed"}).json() == {"prompt": "t7 t8"}
    refused = httpx.post(url, json={**ids, "model": "unknown"})
    assert refused.status_code == 400
    assert "server of unknown@1 has no /detokenize" in refused.json()["error"]["message"]


def test_a_tool_call_passes_through_whole_and_streamed(client: OpenAI) -> None:
    call = '<tool_call> {"name": "weather", "arguments": {"city": "Turin"}} </tool_call>'
    asked: Any = {"model": "relayed", "messages": said_by_user(call), "tools": [WEATHER]}
    [choice] = client.chat.completions.create(**asked).choices
    assert choice.finish_reason == "tool_calls"
    [whole] = choice.message.tool_calls or []
    parts = [
        part
        for chunk in client.chat.completions.create(**asked, stream=True)
        for part in (chunk.choices[0].delta.tool_calls or [])
    ]
    for function in (whole.function, parts[0].function):  # type: ignore[union-attr]
        assert function is not None
        assert function.name == "weather"
        assert json.loads(str(function.arguments)) == {"city": "Turin"}


def test_a_client_that_leaves_frees_its_sequence_on_the_inner_platform(
    outer: Platform, platform: Platform
) -> None:
    body = {"model": "relayed", "messages": said_by_user(), "stream": True, "min_tokens": 3900}
    before = metric(platform, "generation_tokens_total")
    url = f"{outer.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body | {"max_tokens": 3900}) as response:
        lines = response.iter_lines()  # closes the response where nothing refers to it
        next(lines)
        eventually(lambda: metric(platform, "num_requests_running") == 1)
    eventually(lambda: metric(platform, "num_requests_running") == 0)
    assert 0 < metric(platform, "generation_tokens_total") - before < 3900


def test_items_are_relayed_beside_calls_each_with_its_own_text_and_usage(
    outer: Platform, client: OpenAI
) -> None:
    items = [{"input": {"messages": said_by_user(f"item {n} has words")}} for n in range(60)]
    posted = httpx.post(f"{outer.url}/jobs", json={"model": "relayed", "items": items})
    job = posted.raise_for_status().json()["id"]

    def call(n: int) -> Any:
        answer = client.chat.completions.create(model="relayed", messages=said_by_user(f"call {n}"))
        return answer.choices[0].message.content

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(call, range(8))) == [f"call {n}" for n in range(8)]
    eventually(lambda: httpx.get(f"{outer.url}/jobs/{job}").json()["state"] == "completed")
    lines = httpx.get(f"{outer.url}/jobs/{job}/results").text.splitlines()
    outputs = [json.loads(line)["output"] for line in lines]
    said = [one["choices"][0]["message"]["content"] for one in outputs]
    assert said == [f"item {n} has words" for n in range(60)]
    assert {one["usage"]["completion_tokens"] for one in outputs} == {4}


def test_what_the_inner_platform_refuses_is_told(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"\(5000 in the messages"):
        client.chat.completions.create(model="relayed", messages=said_by_user("word " * 5000))
    with pytest.raises(openai.InternalServerError, match="404"):
        client.chat.completions.create(model="unknown", messages=said_by_user())
