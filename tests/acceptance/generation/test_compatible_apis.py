"""Generated texts of a whole platform, as the packages of OpenAI and Anthropic show them."""

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import orjson
import pytest

from ops.supervisor.platform import Platform
from tests.acceptance.generation.test_streams import MESSAGES, SAID
from tests.support.keys import make_key_at
from tests.support.platforms import CHATTING
from tests.support.wait import eventually

PLATFORM = CHATTING


@pytest.fixture(scope="module")
def key(platform: Platform) -> str:
    return make_key_at(platform.settings.database_url, "packages")[0]


@pytest.fixture
def chat(platform: Platform, key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0) as made:
        yield made


@pytest.fixture
def claude(platform: Platform, key: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=platform.url, api_key=key, max_retries=0) as made:
        yield made


def test_a_message_names_the_stop_sequence_that_ended_it(claude: anthropic.Anthropic) -> None:
    asked: Any = {"model": "chatter", "max_tokens": 50, "messages": MESSAGES}
    asked["stop_sequences"] = ["nothing", " four"]
    whole = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    batch = claude.messages.batches.create(requests=[{"custom_id": "a", "params": asked}])
    eventually(lambda: claude.messages.batches.retrieve(batch.id).processing_status == "ended")
    [line] = claude.messages.batches.results(batch.id)
    assert line.result.type == "succeeded"
    for message in (whole, streamed, line.result.message):
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " four")
        assert message.content[0].type == "text"
        assert message.content[0].text == "one two three"
    plain = claude.messages.create(**asked | {"stop_sequences": ["nothing"]})
    assert (plain.stop_reason, plain.stop_sequence) == ("end_turn", None)


def test_a_choice_names_the_stop_string_that_ended_it(chat: openai.OpenAI) -> None:
    asked: Any = {"model": "chatter", "messages": MESSAGES, "stop": [" four"]}
    whole = chat.chat.completions.create(**asked).choices[0]
    chunks = list(chat.chat.completions.create(**asked, stream=True))
    *_, text = chat.completions.create(model="chatter", prompt=SAID, stop=" four", stream=True)
    for choice in (whole, chunks[-1].choices[0], text.choices[0]):
        assert choice.finish_reason == "stop"
        assert choice.model_extra == {"stop_reason": " four"}


@pytest.mark.parametrize(
    "more",
    [
        {"messages": MESSAGES},
        {"messages": MESSAGES, "system": "Be brief. " * 8000},  # a large body
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "one two"}]},
                {"role": "assistant", "content": "three"},
                {"role": "user", "content": "four five six seven"},
            ]
        },
    ],
)
def test_counted_tokens_are_those_that_the_message_has(
    claude: anthropic.Anthropic, more: dict[str, Any]
) -> None:
    counted = claude.messages.count_tokens(model="chatter", **more)
    message = claude.messages.create(model="chatter", max_tokens=2, **more)
    assert counted.input_tokens == message.usage.input_tokens > 0


def test_a_count_is_refused_as_its_message_would_be(claude: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "word " * 9000}]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: it has 9000 tokens"):
        claude.messages.count_tokens(model="chatter", messages=messages)


def test_a_prompt_that_is_too_long_is_named_as_tools_know_it(chat: openai.OpenAI) -> None:
    """LiteLLM and LangChain read these words, and go to a model with more room."""
    messages: Any = [{"role": "user", "content": "word " * 9000}]
    with pytest.raises(openai.BadRequestError, match="prompt is too long: it has 9000 tokens"):
        chat.chat.completions.create(model="chatter", messages=messages)


def test_no_clients_input_asks_for_a_count(platform: Platform, key: str) -> None:
    body = {"model": "chatter", "input": {"count_tokens": {"messages": MESSAGES}}}
    headers = {"Authorization": f"Bearer {key}"}
    found = httpx.post(f"{platform.url}/infer", json=body, headers=headers)
    assert found.status_code == 422


PROMPTS = ["one two three", "four five", "six"]


def joined(chunks: Any) -> dict[int, str]:
    texts: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    return texts


@pytest.mark.parametrize("prompts", [PROMPTS, [[1, 2, 3], [4, 5], [6]]], ids=["texts", "tokens"])
def test_choices_of_several_prompts_have_their_order(chat: openai.OpenAI, prompts: Any) -> None:
    asked: Any = {"model": "chatter", "n": 2, "max_tokens": 9, "echo": True}
    alone = [chat.completions.create(prompt=prompt, **asked) for prompt in prompts]
    whole = chat.completions.create(prompt=prompts, **asked)
    assert [choice.index for choice in whole.choices] == list(range(6))
    texts = [choice.text for one in alone for choice in one.choices]
    assert [choice.text for choice in whole.choices] == texts
    assert whole.usage is not None
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(whole.usage, name) == sum(getattr(one.usage, name) for one in alone)
    usage: Any = {"stream": True, "stream_options": {"include_usage": True}}
    chunks: Any = list(chat.completions.create(prompt=prompts, **asked, **usage))
    assert joined(chunks) == dict(enumerate(texts))
    assert (chunks[-1].choices, chunks[-1].usage) == ([], whole.usage)
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_line_of_a_batch_may_have_several_prompts(chat: openai.OpenAI) -> None:
    body = {"model": "chatter", "prompt": PROMPTS}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    file = chat.files.create(file=("a.jsonl", orjson.dumps(line)), purpose="batch")
    made = chat.batches.create(
        input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
    )
    ended = eventually(lambda: (b := chat.batches.retrieve(made.id)).status == "completed" and b)
    found = orjson.loads(chat.files.content(str(ended.output_file_id)).text)
    choices = found["response"]["body"]["choices"]
    assert [choice["text"] for choice in choices] == PROMPTS


@pytest.mark.parametrize("echo", [False, True])
def test_each_token_is_at_its_offset(chat: openai.OpenAI, echo: bool) -> None:
    """Also those whose text is held back, since it may become the stop string."""
    asked: Any = {"model": "chatter", "prompt": SAID, "logprobs": 0, "echo": echo}
    asked["stop"] = " two three nine"
    whole = chat.completions.create(**asked).choices[0]
    chunks = list(chat.completions.create(**asked, stream=True))
    parts = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    streamed = [
        (token, at)
        for one in parts
        for token, at in zip(one.tokens, one.text_offset, strict=True)  # type: ignore[arg-type]
    ]
    assert whole.logprobs is not None
    found = list(zip(whole.logprobs.tokens, whole.logprobs.text_offset, strict=True))  # type: ignore[arg-type]
    assert streamed == found
    assert len(found) == 5
    assert whole.text == (SAID if echo else "") + SAID
    assert all(whole.text[at:].startswith(token) for token, at in found)
    assert found[0][1] == (len(SAID) if echo else 0)


WEATHER = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"tools": [WEATHER], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": WEATHER}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"extra_body": {"choice": ["a", "b"]}}, "choice"),
    ],
)
def test_a_model_that_cannot_follow_a_grammar_refuses_it_by_name(
    chat: openai.OpenAI, more: Any, field: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat.chat.completions.create(model="chatter", messages=MESSAGES, **more)
    assert f"{field} isn't supported" in caught.value.message


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "weather"}}, "tool_choice"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config"),
    ],
)
def test_anthropics_forms_of_it_are_refused_by_name(
    claude: anthropic.Anthropic, more: Any, field: str
) -> None:
    tools: Any = [{"name": "weather", "input_schema": {"type": "object"}}]
    body = {"model": "chatter", "max_tokens": 9, "messages": MESSAGES, "tools": tools, **more}
    with pytest.raises(anthropic.BadRequestError, match=field):
        claude.post("/v1/messages", body=body, cast_to=object)
