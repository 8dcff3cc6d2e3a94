"""Structured output of a whole platform, as the packages of OpenAI and Anthropic ask for it.

The model has random weights: what it writes has the form that was asked for, or none.
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal

import anthropic
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI
from pydantic import BaseModel, ConfigDict

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.generation import tiny_llama
from tests.support.jobs import run
from tests.support.packages import openai_batch
from tests.support.platforms import GENERATING, Platforms

PLATFORM = GENERATING
MESSAGES: list[Any] = [{"role": "user", "content": "The cat"}]
ASKED: Any = {"model": "tiny", "messages": MESSAGES}
SAID: Any = {**ASKED, "max_tokens": 900}  # of Anthropic's, where it must be given
EXPRESSION = "[a-f]{3}-[0-9]{2}"
BOMB = "(" * 20_000 + "a" + ")" * 20_000


class Unit(Enum):
    C = "C"
    F = "F"


class Weather(BaseModel):
    """Weather of a city."""

    model_config = ConfigDict(extra="forbid")

    code: Literal[7, 8, 99]
    unit: Unit
    sunny: bool


@pytest.fixture(scope="module")
def platform(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tiny_llama.save(tmp_path_factory.mktemp("tiny"), max_position_embeddings=4096)
    with platforms.shared(GENERATING, tiny_llama.entry(folder)) as running:
        yield running


def test_a_completion_is_parsed_into_its_type(chat: OpenAI) -> None:
    for seed in range(5):
        done = chat.chat.completions.parse(**ASKED, response_format=Weather, seed=seed, n=2)
        for choice in done.choices:
            assert choice.finish_reason == "stop"
            assert isinstance(choice.message.parsed, Weather)
    whole = chat.chat.completions.parse(**ASKED, response_format=Weather, seed=3)
    with chat.chat.completions.stream(**ASKED, response_format=Weather, seed=3) as stream:
        streamed = stream.get_final_completion()
    assert streamed.choices[0].message.parsed == whole.choices[0].message.parsed
    with pytest.raises(openai.LengthFinishReasonError):  # JSON that is cut
        chat.chat.completions.parse(**ASKED, response_format=Weather, max_tokens=4)


def test_a_response_is_parsed_into_its_type(chat: OpenAI) -> None:
    done = chat.responses.parse(model="tiny", input="The cat", text_format=Weather)
    assert isinstance(done.output_parsed, Weather)
    assert chat.responses.retrieve(done.id).output_text == done.output_text
    bomb: Any = {"type": "json_schema", "name": "x", "schema": ["no schema"]}
    with pytest.raises(openai.BadRequestError) as caught:
        chat.responses.create(model="tiny", input="x", text={"format": bomb})
    assert str(caught.value.param).startswith("text.format")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "Weather"}])
def test_a_function_that_must_be_called_is_an_item(chat: OpenAI, choice: Any) -> None:
    function = openai.pydantic_function_tool(Weather)["function"]
    tool: Any = {"type": "function", **function}
    done = chat.responses.create(
        model="tiny", input="The cat", tools=[tool], tool_choice=choice, parallel_tool_calls=False
    )
    [call] = done.output
    assert call.type == "function_call"
    assert Weather.model_validate_json(call.arguments)


NAMED = {"type": "function", "function": {"name": "Weather"}}


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_strict_tool_is_called_as_it_was_declared(chat: OpenAI, choice: Any) -> None:
    tools: Any = {"tools": [openai.pydantic_function_tool(Weather)], "tool_choice": choice}
    asked = {**ASKED, **tools, "parallel_tool_calls": False, "seed": 4}
    whole = chat.chat.completions.parse(**asked)
    with chat.chat.completions.stream(**asked) as stream:
        streamed = stream.get_final_completion()
    for done in (whole, streamed):
        assert done.choices[0].finish_reason == "tool_calls"
        [call] = done.choices[0].message.tool_calls or ()
        assert isinstance(call.function.parsed_arguments, Weather)


def test_a_call_that_the_longest_length_cuts_is_an_unfinished_one(
    chat: OpenAI, claude: Anthropic
) -> None:
    tools: Any = {"tools": [openai.pydantic_function_tool(Weather)], "tool_choice": NAMED}
    asked = {**ASKED, **tools, "seed": 4, "max_tokens": 64}
    for most in (10, 64):
        whole = chat.chat.completions.create(**asked | {"max_tokens": most})
        with chat.chat.completions.create(**asked | {"max_tokens": most}, stream=True) as stream:
            deltas = [chunk.choices[0] for chunk in stream if chunk.choices]
        [choice] = whole.choices
        assert (choice.finish_reason, deltas[-1].finish_reason) == ("length", "length")
        assert not choice.message.content
        assert not any(one.delta.content for one in deltas)
        made: Any = choice.message.tool_calls or ()
        streamed: Any = [call for one in deltas for call in one.delta.tool_calls or ()]
        calls = [[(one.function.name, one.function.arguments) for one in its]
                 for its in (made, streamed)]  # fmt: skip
        assert calls[0] == calls[1]
    [(name, arguments)] = calls[0]
    assert name == "Weather"
    assert arguments.startswith("{")
    tool = {"name": "weather", "input_schema": Weather.model_json_schema(), "strict": True}
    cut: Any = {"max_tokens": 64, "tools": [tool], "tool_choice": {"type": "any"}}
    done = claude.messages.create(**SAID | cut)
    assert done.stop_reason == "max_tokens"
    assert [block.type for block in done.content] == ["tool_use"]


def test_a_message_is_parsed_into_its_type(claude: Anthropic) -> None:
    done = claude.messages.parse(**SAID, output_format=Weather)
    assert isinstance(done.parsed_output, Weather)
    assert done.stop_reason == "end_turn"
    with claude.messages.stream(**SAID, output_format=Weather) as stream:
        streamed = stream.get_final_message()
    assert isinstance(streamed.parsed_output, Weather)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_a_tool_of_a_message_is_called_as_it_was_declared(claude: Anthropic, choice: Any) -> None:
    tool = {"name": "weather", "input_schema": Weather.model_json_schema(), "strict": True}
    alone = {**choice, "disable_parallel_tool_use": True}
    done = claude.messages.create(**SAID, tools=[tool], tool_choice=alone)
    assert done.stop_reason == "tool_use"
    [block] = done.content
    assert block.type == "tool_use"
    Weather.model_validate(block.input)


def test_a_schema_that_cannot_be_followed_is_refused_in_each_apis_words(
    chat: OpenAI, claude: Anthropic
) -> None:
    wanted: Any = {"name": "a", "schema": {"not": {}}, "strict": True}
    form: Any = {"type": "json_schema", "json_schema": wanted}
    with pytest.raises(openai.BadRequestError, match=r"schema can't be compiled.*not") as caught:
        chat.chat.completions.create(**ASKED, response_format=form)
    assert caught.value.type == "invalid_request_error"
    config: Any = {"format": {"type": "json_schema", "schema": {"not": {}}}}
    told = r"output_config.format.schema can.*t be compiled"
    with pytest.raises(anthropic.BadRequestError, match=told):
        claude.messages.create(**SAID, output_config=config)


@pytest.mark.parametrize("stream", [False, True])
def test_a_bomb_is_refused_and_nobody_else_is_troubled(chat: OpenAI, stream: bool) -> None:
    for bomb, told in ((BOMB, "regex can't be compiled"), ("a" * 70_000, "there may be 65,536")):
        refused = openai.APIError if stream else openai.BadRequestError
        with pytest.raises(refused, match=told) as caught:
            # On a slow machine the stream has begun, and its error is an event.
            list(chat.chat.completions.create(**ASKED, stream=stream, extra_body={"regex": bomb}))
    assert caught.value.param == "regex"
    asked: Any = {"prompt": "a", "extra_body": {"regex": EXPRESSION}, "max_tokens": 30}
    found = chat.completions.create(model="tiny", **asked)
    assert re.fullmatch(EXPRESSION, found.choices[0].text)


def test_a_batch_has_a_form_for_each_line(chat: OpenAI) -> None:
    schema = {"name": "w", "schema": Weather.model_json_schema(), "strict": True}
    json_form = {"response_format": {"type": "json_schema", "json_schema": schema}}
    lines = [ASKED | form for form in (json_form, {"choice": ["yes", "no"]}, {"regex": BOMB})]
    written, [failed] = openai_batch(chat, "/v1/chat/completions", *lines)
    answers = [line["response"]["body"]["choices"][0] for line in written]
    weather, word = (answer["message"]["content"] for answer in answers)
    Weather.model_validate_json(weather)
    assert word in ("yes", "no")
    assert failed["custom_id"] == "2"
    assert failed["response"]["status_code"] == 400
    assert "regex can't be compiled" in failed["response"]["body"]["error"]["message"]


def test_infer_and_items_have_the_native_names(platform: Platform, client: Client) -> None:
    asked = {"messages": MESSAGES, "regex": EXPRESSION, "max_tokens": 40}
    results = run(platform, client, "tiny", [asked | {"seed": seed} for seed in range(20)])
    outputs = [client.infer("tiny", asked).output, *(result.output for result in results)]
    found = [output["choices"][0]["message"]["content"] for output in outputs]
    assert len(found) == 21
    assert all(re.fullmatch(EXPRESSION, one) for one in found)
    assert len(set(found)) > 1
