"""The Responses API, by the openai package as it is: answers at once, and in the background, which
are jobs of one item, streamed from any event on."""

from collections.abc import Iterable
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response, ResponseFunctionToolCall, ResponseStreamEvent

from ops.supervisor.platform import Platform
from tests.support.children import kill
from tests.support.clients import events
from tests.support.models.entries import model
from tests.support.packages import openai_of
from tests.support.platforms import CHATTING, supervised
from tests.support.wait import PATIENCE_S, eventually

PLATFORM = CHATTING
MODELS = model("chatter", "echo_chat") + model("slow", "echo_chat", step_ms=50.0)
SAID = "one two three four five"
CALL = '<tool_call>{"name":"weather","arguments":{"city":"Turin"}}</tool_call>'
WEATHER = {"type": "function", "name": "weather", "description": "The weather of a city"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: Any = [{**WEATHER, "parameters": CITY, "strict": False}]


def numbers_of(events: Iterable[ResponseStreamEvent]) -> list[int]:
    return [event.sequence_number for event in events]


def last_of(events: list[ResponseStreamEvent]) -> Response:
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete", "response.failed")
    return last.response


def text_of(events: Iterable[ResponseStreamEvent]) -> str:
    return "".join(one.delta for one in events if one.type == "response.output_text.delta")


def test_a_response_is_made_retrieved_and_deleted(client: OpenAI) -> None:
    made = client.responses.create(model="chatter", input=SAID, metadata={"kind": "test"})
    assert (made.status, made.output_text, made.metadata) == ("completed", SAID, {"kind": "test"})
    assert made.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens) == (5, 5)
    assert client.responses.retrieve(made.id) == made
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_tokens_of_a_conversation_are_counted_as_they_will_be(client: OpenAI) -> None:
    first = client.responses.create(model="chatter", input=SAID)
    asked: Any = {"model": "chatter", "input": "six", "previous_response_id": first.id}
    counted = client.responses.input_tokens.count(**asked, instructions="be brief")
    made = client.responses.create(**asked, instructions="be brief")
    assert made.usage is not None
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == made.usage.input_tokens > 0
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.input_tokens.count(model="chatter", input=5)  # type: ignore[arg-type]
    assert caught.value.param == "input"


def test_a_response_that_is_not_to_be_stored_is_not(client: OpenAI) -> None:
    made = client.responses.create(model="chatter", input=SAID, store=False)
    assert made.output_text == SAID
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="chatter", input="x", previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_found"


def test_a_stream_has_every_event_in_order(client: OpenAI) -> None:
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
    with client.responses.stream(model="chatter", input=SAID) as stream:
        final = stream.get_final_response()
    assert (final.output_text, final.status) == (SAID, "completed")


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_is_cut_is_incomplete(client: OpenAI, stream: bool) -> None:
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


def test_a_conversation_goes_on_with_the_items_before(client: OpenAI) -> None:
    first = client.responses.create(model="chatter", input="one two", instructions="Be brief.")
    second = client.responses.create(model="chatter", input="three", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    four: Any = [{"role": "user", "content": "four"}]
    third = client.responses.create(model="chatter", input=four, previous_response_id=second.id)
    items = list(client.responses.input_items.list(third.id, order="asc", limit=2))
    texts = [item.content[0].text for item in items]  # type: ignore[union-attr]
    assert texts == ["one two", first.output_text, "three", second.output_text, "four"]
    newest_first = list(client.responses.input_items.list(third.id))
    assert [item.id for item in newest_first] == [item.id for item in reversed(items)]
    assert second.instructions is None  # those of a response are its own


@pytest.mark.parametrize("said", [SAID, CALL], ids=["message", "call"])
def test_an_item_of_a_stored_output_may_be_named_by_its_id(client: OpenAI, said: str) -> None:
    """References in the way that Vercel's AI SDK sends what the model said before."""
    user: Any = {"role": "user", "content": said}
    first = client.responses.create(model="chatter", input=[user], tools=TOOLS)
    named: Any = [{"type": "item_reference", "id": item.id} for item in first.output]
    after = user
    if first.output[0].type == "function_call":
        called = first.output[0].call_id
        after = {"type": "function_call_output", "call_id": called, "output": "sunny"}
    second = client.responses.create(model="chatter", input=[user, *named, after], tools=TOOLS)
    found = list(client.responses.input_items.list(second.id, order="asc"))
    assert [item.id for item in found[1:-1]] == [item.id for item in first.output]
    assert second.usage is not None
    spelled = client.responses.create(
        model="chatter", input=[user, *first.model_dump(mode="json")["output"], after], tools=TOOLS
    )
    assert spelled.usage is not None
    assert second.usage.input_tokens == spelled.usage.input_tokens


def test_only_ones_own_responses_and_items_can_be_named(client: OpenAI, platform: Platform) -> None:
    made = client.responses.create(model="chatter", input=SAID)
    [item] = made.output
    with openai_of(platform, "mallory") as other:
        with pytest.raises(openai.BadRequestError, match="not found"):
            other.responses.create(model="chatter", input="x", previous_response_id=made.id)
        for asking, id in ((other, item.id), (client, "msg_nothing"), (client, f"{item.id}0")):
            named: Any = [{"type": "item_reference", "id": id}, {"role": "user", "content": "x"}]
            with pytest.raises(openai.BadRequestError, match="stored response") as caught:
                asking.responses.create(model="chatter", input=named)
            assert caught.value.param == "input[0].id"


def test_a_conversation_whose_beginning_was_deleted_does_not_go_on(client: OpenAI) -> None:
    first = client.responses.create(model="chatter", input="one")
    second = client.responses.create(model="chatter", input="two", previous_response_id=first.id)
    client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError, match=first.id) as caught:
        client.responses.create(model="chatter", input="three", previous_response_id=second.id)
    assert caught.value.code == "previous_response_not_found"
    assert client.responses.retrieve(second.id).output_text == second.output_text


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_functions_are_items(client: OpenAI, stream: bool) -> None:
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


def test_log_probabilities_come_where_they_are_included(client: OpenAI) -> None:
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
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"text": {"colour": "red"}}, "text.colour"),
        ({"include": ["everything"]}, "include"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"background": True, "store": False}, "store"),
        ({"input": []}, "input"),
        ({"input": [{"type": "reasoning"}]}, "input"),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0].type"),
        ({"temperature": 3}, "temperature"),
        ({"extra_body": {"colour": "red"}}, "colour"),
    ],
)  # fmt: skip
def test_what_is_not_served_is_refused_with_its_name(
    client: OpenAI, more: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{"model": "chatter", "input": "x", **more})
    assert caught.value.param == param


def test_a_call_that_is_cut_is_an_incomplete_item(client: OpenAI) -> None:
    asked: Any = {"model": "chatter", "input": CALL.replace(":", ": "), "tools": TOOLS}
    asked |= {"max_output_tokens": 3}
    whole = client.responses.create(**asked)
    streamed = last_of(list(client.responses.create(**asked, stream=True)))
    for made in (
        whole,
        streamed,
        ended(client, client.responses.create(**asked, background=True).id),
    ):
        assert made.status == "incomplete"
        [call] = made.output
        assert isinstance(call, ResponseFunctionToolCall)
        assert (call.name, call.arguments, call.status) == ("weather", '{"city":', "incomplete")


@pytest.mark.parametrize("most", [None, 63])
def test_a_call_at_the_end_of_a_response_that_is_followed_is_an_item(
    client: OpenAI, most: int | None
) -> None:
    """Its text is read from checkpoints, until the worker has the call apart from it."""
    words = " ".join(f"w{n}" for n in range(60))
    said = f"{words} {CALL.replace(':', ': ')}"
    asked: Any = {"model": "slow", "input": said, "tools": TOOLS, "max_output_tokens": most}
    found = list(client.responses.create(**asked, background=True, stream=True))
    assert text_of(found).strip() == words
    done = last_of(found)
    assert [item.type for item in done.output] == ["message", "function_call"]
    assert done.status == ("incomplete" if most else "completed")
    added = [one for one in found if one.type == "response.output_item.done"]
    assert [one.item.type for one in added] == ["message", "function_call"]


def test_only_one_in_the_background_is_cancelled_or_streamed_again(client: OpenAI) -> None:
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


LONG = " ".join(f"word{n}" for n in range(120))


def ended(client: OpenAI, id: str) -> Response:
    def look() -> Any:
        found = client.responses.retrieve(id)
        return found.status not in ("queued", "in_progress") and found

    found: Response = eventually(look)
    return found


def test_a_response_in_the_background_is_a_job(client: OpenAI, http: httpx.Client) -> None:
    made = client.responses.create(model="chatter", input=SAID, background=True)
    assert (made.status, made.background) == ("queued", True)
    done = ended(client, made.id)
    assert (done.status, done.output_text) == ("completed", SAID)
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens) == (5, 5)
    job = http.get(f"/jobs/{made.id}").json()
    assert (job["state"], job["counts"]["succeeded"]) == ("completed", 1)
    after = client.responses.create(model="chatter", input="six", previous_response_id=made.id)
    assert after.status == "completed"
    client.responses.delete(made.id)
    assert http.get(f"/jobs/{made.id}").status_code == 404


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "slow", "input": LONG},
        {"model": "chatter", "input": f"Look: {CALL} and on", "tools": TOOLS},
        {"model": "chatter", "input": SAID, "max_output_tokens": 3},
    ],
)
def test_a_stream_can_be_resumed_at_any_event(client: OpenAI, asked: Any) -> None:
    events = list(client.responses.create(**asked, background=True, stream=True))
    assert [event.type for event in events[:3]] == [
        "response.created", "response.queued", "response.in_progress",
    ]  # fmt: skip
    assert numbers_of(events) == list(range(len(events)))
    done = last_of(events)
    assert client.responses.retrieve(done.id) == done
    assert text_of(events) == "".join(
        item.content[0].text  # type: ignore[union-attr]
        for item in done.output
        if item.type == "message"
    )
    for after in {0, 3, len(events) // 2, len(events) - 2, len(events) - 1}:
        again = list(client.responses.retrieve(done.id, stream=True, starting_after=after))
        assert again == events[after + 1 :]


def test_a_stream_shows_the_text_before_its_end(client: OpenAI) -> None:
    made = client.responses.create(model="slow", input=LONG, background=True)
    stream = client.responses.retrieve(made.id, stream=True)
    seen = []
    for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    stream.close()
    assert client.responses.retrieve(made.id).status == "in_progress"
    rest = list(
        client.responses.retrieve(made.id, stream=True, starting_after=seen[-1].sequence_number)
    )
    assert numbers_of([*seen, *rest]) == list(range(len(seen) + len(rest)))
    assert text_of([*seen, *rest]) == LONG


def test_a_stream_goes_on_when_its_worker_is_killed(client: OpenAI, platform: Platform) -> None:
    made = client.responses.create(model="slow", input=LONG, background=True)
    seen = []
    with supervised(platform):
        for event in client.responses.retrieve(made.id, stream=True):
            seen.append(event)
            if len(seen) == 10:
                kill(platform)
    assert seen[9].type == "response.output_text.delta"
    assert numbers_of(seen) == list(range(len(seen)))
    assert text_of(seen) == LONG
    assert list(client.responses.retrieve(made.id, stream=True)) == seen


def test_a_response_is_waited_for_or_cancelled_which_ends_its_streams(client: OpenAI) -> None:
    made = client.responses.create(model="slow", input=f"{LONG} {LONG}", background=True)
    with pytest.raises(openai.BadRequestError, match="has not ended"):
        client.responses.create(model="chatter", input="x", previous_response_id=made.id)
    with pytest.raises(openai.ConflictError):
        client.responses.delete(made.id)
    found = client.responses.cancel(made.id)
    assert found.status == "cancelled"
    events = list(client.responses.retrieve(made.id, stream=True))
    assert last_of(events).status == "cancelled"
    eventually(lambda: client.responses.cancel(made.id).status == "cancelled")

    def deleted() -> bool:
        try:
            client.responses.delete(made.id)
        except openai.ConflictError:  # its launch has not ended yet
            return False
        return True

    eventually(deleted)


def test_a_response_that_fails_says_why(client: OpenAI) -> None:
    made = client.responses.create(model="chatter", input="word " * 9000, background=True)
    done = ended(client, made.id)
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.code == "invalid_prompt"
    assert "(9000 in the messages" in done.error.message
    events = list(client.responses.retrieve(made.id, stream=True))
    assert events[-1].type == "response.failed"


@pytest.mark.parametrize("background", [True, False])
def test_a_key_makes_one_response(http: httpx.Client, background: bool) -> None:
    body = {"model": "chatter", "input": SAID, "background": background}
    named = {"Idempotency-Key": f'"in the background: {background}"'}
    first, again = (http.post("/v1/responses", json=body, headers=named) for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"
