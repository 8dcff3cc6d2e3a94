"""The SDKs of OpenAI and Anthropic, as they come."""

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.integration.api.generation.conftest import Stage, driving
from tests.support.cases import each
from tests.support.generation.generation_worker import answering

MESSAGES: list[Any] = [{"role": "user", "content": "x"}]
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Turin"}}</tool_call>'


@pytest.fixture
def chat(stage: Stage) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{stage.url}/v1", api_key=stage.key, max_retries=0) as made:
        yield made


@pytest.fixture
def claude(stage: Stage) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=stage.url, api_key=stage.key, max_retries=0) as made:
        yield made


def test_openais_client_gets_tool_calls(stage: Stage, chat: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "function": {"name": "weather"}}]
    with (
        answering(stage.worker, [*CALL]),
        chat.chat.completions.stream(model="m", messages=MESSAGES, tools=tools) as stream,
    ):
        message = stream.get_final_completion().choices[0]
    assert message.finish_reason == "tool_calls"
    assert message.message.tool_calls
    assert message.message.tool_calls[0].function.name == "weather"


def test_openais_client_raises_an_error_in_the_middle(stage: Stage, chat: openai.OpenAI) -> None:
    with driving(stage.break_off):
        stream = chat.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="it broke"):
            list(stream)


def test_anthropics_client_gets_and_streams_a_message(
    stage: Stage, claude: anthropic.Anthropic
) -> None:
    asked: Any = {"model": "m", "max_tokens": 9, "messages": MESSAGES}
    with answering(stage.worker, ["one", " two", " three"]):
        whole = claude.messages.create(**asked)
        with claude.messages.stream(**asked) as stream:
            assert "".join(stream.text_stream) == "one two three"
            streamed = stream.get_final_message()
    assert whole._request_id  # noqa: SLF001 - where the SDK keeps the header
    for message in (whole, streamed):
        assert (message.content[0].type, message.content[0].text) == ("text", "one two three")
        assert message.stop_reason == "end_turn"
        assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 3)


def test_anthropics_client_gets_tool_calls(stage: Stage, claude: anthropic.Anthropic) -> None:
    tools: Any = [{"name": "weather", "input_schema": {"type": "object"}}]
    with (
        answering(stage.worker, ["Well. ", *CALL]),
        claude.messages.stream(model="m", max_tokens=9, messages=MESSAGES, tools=tools) as stream,
    ):
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.content[1].type == "tool_use"
    assert message.content[1].input == {"city": "Turin"}
    assert message.stop_reason == "tool_use"


def test_anthropics_tool_runner_goes_on_without_a_thread(
    stage: Stage, claude: anthropic.Anthropic
) -> None:
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Tells the weather."""
        return f"{city}: sunny"

    asked: Any = {"model": "m", "max_tokens": 9, "messages": MESSAGES}
    with answering(stage.worker, ["one"]):
        message = claude.beta.messages.tool_runner(**asked, tools=[weather]).until_done()
    assert message.content[0].type == "text"
    with pytest.raises(anthropic.BadRequestError) as raised:
        claude.beta.messages.create(**asked, thread={"type": "create"})
    assert raised.value.error_code == "thread_unsupported_request"


def test_tokens_of_another_servers_model_are_estimated(claude: anthropic.Anthropic) -> None:
    long: list[Any] = [{"role": "user", "content": "a longer text " * 50}]
    few, many = (
        claude.messages.count_tokens(model="up", messages=messages) for messages in (MESSAGES, long)
    )
    assert 0 < few.input_tokens < many.input_tokens


def test_anthropics_client_learns_that_there_is_no_room(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.APIStatusError) as counted:  # a count is not guessed
        claude.messages.count_tokens(model="idle", messages=MESSAGES)
    with pytest.raises(anthropic.APIStatusError) as raised:
        claude.messages.create(model="up", max_tokens=9, messages=MESSAGES)
    assert (counted.value.status_code, raised.value.status_code) == (529, 529)
    assert raised.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
    assert raised.value.request_id


def test_anthropics_client_raises_errors_midway(stage: Stage, claude: anthropic.Anthropic) -> None:
    with (
        driving(stage.break_off),
        pytest.raises(anthropic.APIStatusError, match="it broke"),
        claude.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream,
    ):
        stream.get_final_message()


def test_anthropics_client_hears_refusals(claude: anthropic.Anthropic) -> None:
    body: dict[str, Any] = {"model": "m", "max_tokens": 2000, "messages": MESSAGES}
    for more, case in each(
        [
            {"thinking": {"type": "sometimes"}},
            {"extra_body": {"temperature": 3}},
            {"messages": [*MESSAGES, {"role": "assistant", "content": ""}]},
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
        ]
    ):
        with case:
            with pytest.raises(anthropic.BadRequestError) as raised:
                claude.messages.create(**body | more)
            assert raised.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]
