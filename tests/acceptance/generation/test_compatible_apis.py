"""Generated texts of a whole platform, as the packages of OpenAI and Anthropic show them."""

from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.acceptance.generation.test_streams import CHATTER, MESSAGES, SAID
from tests.support.packages import anthropic_ended, openai_batch
from tests.support.platforms import CHATTING

MODELS = CHATTER
PLATFORM = CHATTING


def test_a_message_names_the_stop_sequence_that_ended_it(claude: anthropic.Anthropic) -> None:
    asked: Any = {"model": "chatter", "max_tokens": 50, "messages": MESSAGES}
    asked["stop_sequences"] = ["nothing", " four"]
    whole = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    batch = claude.messages.batches.create(requests=[{"custom_id": "a", "params": asked}])
    anthropic_ended(claude, batch.id)
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


@pytest.mark.parametrize("count", [True, False])
def test_a_prompt_that_is_too_long_is_named_as_tools_know_it(
    claude: anthropic.Anthropic, chat: openai.OpenAI, count: bool
) -> None:
    """LiteLLM and LangChain read these words, and go to a model with more room."""
    messages: Any = [{"role": "user", "content": "word " * 9000}]
    ask: Any = claude.messages.count_tokens if count else chat.chat.completions.create
    refusals = (anthropic.BadRequestError, openai.BadRequestError)
    with pytest.raises(refusals, match="prompt is too long: it has 9000 tokens"):
        ask(model="chatter", messages=messages)


def test_no_clients_input_asks_for_a_count(http: httpx.Client) -> None:
    body = {"model": "chatter", "input": {"count_tokens": {"messages": MESSAGES}}}
    assert http.post("/infer", json=body).status_code == 422


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
    [found], _ = openai_batch(chat, "/v1/completions", {"model": "chatter", "prompt": PROMPTS})
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
