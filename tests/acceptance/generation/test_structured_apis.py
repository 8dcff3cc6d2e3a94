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
from pydantic import BaseModel, ConfigDict

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.generation import tiny_llama
from tests.support.jobs import run
from tests.support.packages import openai_batch
from tests.support.platforms import GENERATING, Platforms

PLATFORM = GENERATING
MESSAGES: list[Any] = [{"role": "user", "content": "The cat"}]
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


def test_a_completion_is_parsed_into_its_type(chat: openai.OpenAI) -> None:
    for seed in range(5):
        done = chat.chat.completions.parse(
            model="tiny", messages=MESSAGES, response_format=Weather, seed=seed, n=2
        )
        for choice in done.choices:
            assert choice.finish_reason == "stop"
            assert isinstance(choice.message.parsed, Weather)


def test_a_streamed_completion_is_parsed_into_its_type(chat: openai.OpenAI) -> None:
    asked: Any = {"model": "tiny", "messages": MESSAGES, "seed": 3}
    with chat.chat.completions.stream(**asked, response_format=Weather) as stream:
        done = stream.get_final_completion()
    whole = chat.chat.completions.parse(**asked, response_format=Weather)
    assert done.choices[0].message.parsed == whole.choices[0].message.parsed


def test_json_that_is_cut_ends_by_length(chat: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        chat.chat.completions.parse(
            model="tiny", messages=MESSAGES, response_format=Weather, max_tokens=4
        )


def test_a_response_is_parsed_into_its_type(chat: openai.OpenAI) -> None:
    done = chat.responses.parse(model="tiny", input="The cat", text_format=Weather)
    assert isinstance(done.output_parsed, Weather)
    assert chat.responses.retrieve(done.id).output_text == done.output_text
    bomb: Any = {"type": "json_schema", "name": "x", "schema": ["no schema"]}
    with pytest.raises(openai.BadRequestError) as caught:
        chat.responses.create(model="tiny", input="x", text={"format": bomb})
    assert str(caught.value.param).startswith("text.format")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "Weather"}])
def test_a_function_that_must_be_called_is_an_item_of_the_response(
    chat: openai.OpenAI, choice: Any
) -> None:
    function = openai.pydantic_function_tool(Weather)["function"]
    tool: Any = {"type": "function", **function}
    done = chat.responses.create(
        model="tiny", input="The cat", tools=[tool], tool_choice=choice, parallel_tool_calls=False
    )
    [call] = done.output
    assert call.type == "function_call"
    assert Weather.model_validate_json(call.arguments)


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "Weather"}}]
)
def test_a_strict_tool_is_called_as_it_was_declared(chat: openai.OpenAI, choice: Any) -> None:
    asked: Any = {
        "model": "tiny",
        "messages": MESSAGES,
        "tools": [openai.pydantic_function_tool(Weather)],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "seed": 4,
    }
    whole = chat.chat.completions.parse(**asked)
    with chat.chat.completions.stream(**asked) as stream:
        streamed = stream.get_final_completion()
    for done in (whole, streamed):
        assert done.choices[0].finish_reason == "tool_calls"
        [call] = done.choices[0].message.tool_calls or ()
        assert isinstance(call.function.parsed_arguments, Weather)


def test_a_message_is_parsed_into_its_type(claude: anthropic.Anthropic) -> None:
    asked: Any = {"model": "tiny", "max_tokens": 900, "messages": MESSAGES}
    done = claude.messages.parse(**asked, output_format=Weather)
    assert isinstance(done.parsed_output, Weather)
    assert done.stop_reason == "end_turn"
    with claude.messages.stream(**asked, output_format=Weather) as stream:
        streamed = stream.get_final_message()
    assert isinstance(streamed.parsed_output, Weather)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_a_tool_of_a_message_is_called_as_it_was_declared(
    claude: anthropic.Anthropic, choice: Any
) -> None:
    schema = Weather.model_json_schema()
    done = claude.messages.create(
        model="tiny",
        max_tokens=900,
        messages=MESSAGES,
        tools=[{"name": "weather", "input_schema": schema, "strict": True}],
        tool_choice={**choice, "disable_parallel_tool_use": True},
    )
    assert done.stop_reason == "tool_use"
    [block] = done.content
    assert block.type == "tool_use"
    Weather.model_validate(block.input)


def test_a_schema_that_cannot_be_followed_is_refused_in_each_apis_words(
    chat: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    wanted: Any = {"name": "a", "schema": {"not": {}}, "strict": True}
    with pytest.raises(openai.BadRequestError, match=r"schema can't be compiled.*not") as caught:
        chat.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            response_format={"type": "json_schema", "json_schema": wanted},
        )
    assert caught.value.type == "invalid_request_error"
    config: Any = {"format": {"type": "json_schema", "schema": {"not": {}}}}
    with pytest.raises(
        anthropic.BadRequestError, match=r"output_config.format.schema can.*t be compiled"
    ):
        claude.messages.create(model="tiny", max_tokens=9, messages=MESSAGES, output_config=config)


@pytest.mark.parametrize("stream", [False, True])
def test_a_bomb_is_refused_and_nobody_else_is_troubled(chat: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match="regex can't be compiled"):
        chat.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=stream, extra_body={"regex": BOMB}
        )
    with pytest.raises(openai.BadRequestError, match="there may be 65,536") as caught:
        chat.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=stream, extra_body={"regex": "a" * 70_000}
        )
    assert caught.value.param == "regex"
    found = chat.completions.create(
        model="tiny", prompt="a", extra_body={"regex": EXPRESSION}, max_tokens=30
    )
    assert re.fullmatch(EXPRESSION, found.choices[0].text)


def test_a_batch_has_a_form_for_each_line(chat: openai.OpenAI) -> None:
    forms = [
        {"response_format": {"type": "json_schema", "json_schema": {
            "name": "w", "schema": Weather.model_json_schema(), "strict": True}}},
        {"choice": ["yes", "no"]},
        {"regex": BOMB},
    ]  # fmt: skip
    written, [failed] = openai_batch(
        chat,
        "/v1/chat/completions",
        *({"model": "tiny", "messages": MESSAGES, **form} for form in forms),
    )
    weather, word = (
        line["response"]["body"]["choices"][0]["message"]["content"] for line in written
    )
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
