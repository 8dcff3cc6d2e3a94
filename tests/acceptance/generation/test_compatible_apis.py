"""What the packages of OpenAI and Anthropic show of a generated text, of a whole platform."""

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from ops.supervisor.platform import Platform
from tests.acceptance.generation.test_streams import CHATTERS, MESSAGES, SAID
from tests.support.keys import make_key_at
from tests.support.wait import eventually

PLATFORM = CHATTERS


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
    with pytest.raises(anthropic.BadRequestError, match="9000 tokens"):
        claude.messages.count_tokens(model="chatter", messages=messages)


def test_no_clients_input_asks_for_a_count(platform: Platform, key: str) -> None:
    body = {"model": "chatter", "input": {"count_tokens": {"messages": MESSAGES}}}
    headers = {"Authorization": f"Bearer {key}"}
    found = httpx.post(f"{platform.url}/infer", json=body, headers=headers)
    assert found.status_code == 422
