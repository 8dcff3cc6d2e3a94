"""Responses that are answered at once, by the openai package as it is."""

from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import ResponseFunctionToolCall

from ops.supervisor.platform import Platform
from tests.acceptance.compat.responses import responses
from tests.acceptance.compat.responses.responses import (
    CALL,
    SAID,
    TOOLS,
    last_of,
    numbers_of,
    text_of,
)
from tests.support.clients import events
from tests.support.packages import openai_of
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S

PLATFORM = CHATTING
MODELS = responses.MODELS


def test_a_response_is_made_retrieved_and_deleted(client: openai.OpenAI) -> None:
    made = client.responses.create(model="chatter", input=SAID, metadata={"kind": "test"})
    assert (made.status, made.output_text, made.metadata) == ("completed", SAID, {"kind": "test"})
    assert made.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens) == (5, 5)
    assert client.responses.retrieve(made.id) == made
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_a_response_that_is_not_to_be_stored_is_not(client: openai.OpenAI) -> None:
    made = client.responses.create(model="chatter", input=SAID, store=False)
    assert made.output_text == SAID
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="chatter", input="x", previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_found"


def test_a_stream_has_every_event_in_order(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="chatter", input=SAID, stream=True))
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert deltas > 1
    assert numbers_of(events) == list(range(len(events)))
    assert text_of(events) == SAID
    assert client.responses.retrieve(last_of(events).id) == last_of(events)


def test_the_packages_own_stream_adds_up(client: openai.OpenAI) -> None:
    with client.responses.stream(model="chatter", input=SAID) as stream:
        final = stream.get_final_response()
    assert (final.output_text, final.status) == (SAID, "completed")


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_is_cut_is_incomplete(client: openai.OpenAI, stream: bool) -> None:
    asked: Any = {"model": "chatter", "input": SAID, "max_output_tokens": 2}
    if stream:
        events = list(client.responses.create(**asked, stream=True))
        assert events[-1].type == "response.incomplete"
        made = last_of(events)
    else:
        made = client.responses.create(**asked)
    assert made.status == "incomplete"
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"
    assert made.output_text == "one two"
    assert client.responses.retrieve(made.id) == made


def test_a_conversation_goes_on_with_the_items_before(client: openai.OpenAI) -> None:
    first = client.responses.create(model="chatter", input="one two", instructions="Be brief.")
    second = client.responses.create(model="chatter", input="three", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    third = client.responses.create(
        model="chatter", input=[{"role": "user", "content": "four"}],
        previous_response_id=second.id,
    )  # fmt: skip
    found = client.responses.input_items.list(third.id, order="asc", limit=2)
    items = list(found)
    texts = [item.content[0].text for item in items]  # type: ignore[union-attr]
    assert texts == [
        "one two", first.output_text, "three", second.output_text, "four",
    ]  # fmt: skip
    assert [item.id for item in client.responses.input_items.list(third.id)] == [
        item.id for item in reversed(items)
    ]
    assert second.instructions is None  # those of a response are its own


@pytest.mark.parametrize("said", [SAID, CALL], ids=["message", "call"])
def test_an_item_of_a_stored_output_may_be_named_by_its_id(
    client: openai.OpenAI, said: str
) -> None:
    """References in the way that Vercel's AI SDK sends what the model said before."""
    user: Any = {"role": "user", "content": said}
    first = client.responses.create(model="chatter", input=[user], tools=TOOLS)
    named: Any = [{"type": "item_reference", "id": item.id} for item in first.output]
    after: Any = {"type": "function_call_output", "call_id": "", "output": "sunny"}
    if first.output[0].type == "function_call":
        after["call_id"] = first.output[0].call_id
    else:
        after = user
    second = client.responses.create(model="chatter", input=[user, *named, after], tools=TOOLS)
    found = list(client.responses.input_items.list(second.id, order="asc"))
    assert [item.id for item in found[1:-1]] == [item.id for item in first.output]
    assert second.usage is not None
    spelled = client.responses.create(
        model="chatter", input=[user, *first.model_dump(mode="json")["output"], after], tools=TOOLS
    )
    assert spelled.usage is not None
    assert second.usage.input_tokens == spelled.usage.input_tokens


def test_only_ones_own_items_can_be_named(client: openai.OpenAI, platform: Platform) -> None:
    [item] = client.responses.create(model="chatter", input=SAID).output
    with openai_of(platform, "mallory") as other:
        for asking, id in ((other, item.id), (client, "msg_nothing"), (client, f"{item.id}0")):
            named: Any = [{"type": "item_reference", "id": id}, {"role": "user", "content": "x"}]
            with pytest.raises(openai.BadRequestError, match="stored response") as caught:
                asking.responses.create(model="chatter", input=named)
            assert caught.value.param == "input[0].id"


def test_a_conversation_whose_beginning_was_deleted_does_not_go_on(client: openai.OpenAI) -> None:
    first = client.responses.create(model="chatter", input="one")
    second = client.responses.create(model="chatter", input="two", previous_response_id=first.id)
    client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError, match=first.id) as caught:
        client.responses.create(model="chatter", input="three", previous_response_id=second.id)
    assert caught.value.code == "previous_response_not_found"
    assert client.responses.retrieve(second.id).output_text == second.output_text


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_functions_are_items(client: openai.OpenAI, stream: bool) -> None:
    asked: Any = {"model": "chatter", "input": f"Look: {CALL}", "tools": TOOLS}
    if stream:
        events = list(client.responses.create(**asked, stream=True))
        kinds = [event.type for event in events]
        assert kinds.count("response.function_call_arguments.delta") == 1
        assert kinds.count("response.function_call_arguments.done") == 1
        assert numbers_of(events) == list(range(len(events)))
        made = last_of(events)
    else:
        made = client.responses.create(**asked)
    message, call = made.output
    assert message.type == "message"
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.arguments) == ("weather", '{"city":"Turin"}')
    answer: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    after = client.responses.create(
        model="chatter", input=answer, previous_response_id=made.id, tools=TOOLS, tool_choice="none"
    )
    assert "sunny" in after.output_text
    kinds = [item.type for item in client.responses.input_items.list(after.id, order="asc")]
    assert kinds == ["message", "message", "function_call", "function_call_output"]


def test_log_probabilities_come_where_they_are_included(client: openai.OpenAI) -> None:
    include: Any = ["message.output_text.logprobs"]
    made = client.responses.create(model="chatter", input=SAID, include=include, top_logprobs=1)
    [message] = made.output
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert part.logprobs is not None
    assert "".join(one.token for one in part.logprobs) == SAID


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"conversation": "conv_1"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"include": ["everything"]}, "include"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"background": True, "store": False}, "store"),
        ({"input": []}, "input"),
        ({"input": [{"type": "reasoning"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0].type"),
        ({"temperature": 3}, "temperature"),
        ({"extra_body": {"colour": "red"}}, "colour"),
    ],
)  # fmt: skip
def test_what_is_not_served_is_refused_with_its_name(
    client: openai.OpenAI, more: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{"model": "chatter", "input": "x", **more})
    assert caught.value.param == param


def test_a_response_is_its_tenants_own(client: openai.OpenAI, platform: Platform) -> None:
    made = client.responses.create(model="chatter", input=SAID)
    with openai_of(platform, "mallory") as other:
        for ask in (other.responses.retrieve, other.responses.delete, other.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                ask(made.id)
        with pytest.raises(openai.BadRequestError, match="not found"):
            other.responses.create(model="chatter", input="x", previous_response_id=made.id)


def test_only_a_response_in_the_background_is_cancelled_or_streamed_again(
    client: openai.OpenAI,
) -> None:
    made = client.responses.create(model="chatter", input=SAID)
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        client.responses.cancel(made.id)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.retrieve(made.id, stream=True)


def test_a_stream_goes_on_after_the_last_event_that_came(http: httpx.Client) -> None:
    body = {"model": "slow", "input": SAID, "stream": True}
    url, within = "/v1/responses", {"X-Millrace-Resume-Within": "60"}
    found = []
    with http.stream("POST", url, json=body, headers=within) as stream:
        for event in events(stream.iter_lines()):
            found.append(event)
            if event.name == "response.output_text.delta":
                break
    after = within | {"Last-Event-ID": found[-1].id}
    rest = http.post(url, json=body, headers=after, timeout=PATIENCE_S)
    data = [event.data for event in (*found, *events(rest.text.splitlines()))]
    assert [one["sequence_number"] for one in data] == list(range(len(data)))
    assert "".join(one.get("delta", "") for one in data) == SAID
    done = data[-1]["response"]
    assert http.get(f"{url}/{done['id']}").json() == done
