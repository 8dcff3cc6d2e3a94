"""Prompts that `truncate_prompt_tokens` has cut say so, in calls, streams and jobs."""

from typing import Any

import httpx
from openai import OpenAI

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.models.entries import model
from tests.support.platforms import CHATTING

PLATFORM = CHATTING
MODELS = model("cut-chat", "echo_chat", target_ttft_ms=60000, step_ms=2.0, sequences=16)
MESSAGES: list[Any] = [{"role": "user", "content": "one two three four five"}]
CUT: Any = {"truncate_prompt_tokens": 2}


def test_a_prompt_that_was_cut_says_so(
    client: OpenAI, platform: Platform, key: str, http: httpx.Client
) -> None:
    asked: Any = {"model": "cut-chat", "messages": MESSAGES, "extra_body": CUT}
    usage = client.chat.completions.create(**asked).usage
    assert (usage.prompt_tokens, usage.to_dict()["truncated"]) == (2, 3)
    last = {"stream_options": {"include_usage": True}}
    *_, chunk = client.chat.completions.create(**asked, stream=True, **last)
    assert chunk.usage.to_dict()["truncated"] == 3
    value = {"messages": MESSAGES, **CUT}
    answer = http.post("/infer", json={"model": "cut-chat", "input": value}).json()
    assert answer["usage"]["truncated"] == answer["output"]["usage"]["truncated"] == 3
    with Client(platform.url, key or None) as native:
        id = native.jobs.submit("cut-chat", [value, {"messages": MESSAGES}])["id"]
        assert native.jobs.wait(id)["truncated"] == 1
        usages = [result["usage"] for result in native.jobs.results(id, wait=False)]
    assert [usage.get("truncated") for usage in usages] == [3, None]
