"""The Conversations API, by the openai package as it is, alone and with responses."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import orjson
import pytest
from openai import OpenAI
from openai.types.conversations import Conversation, ConversationItem
from openai.types.responses import Response
from pydantic import TypeAdapter
from sqlalchemy import text

from jobs import ids
from ops.supervisor.platform import Platform
from tests.support.clients import bearer
from tests.support.models.entries import model
from tests.support.packages import openai_of
from tests.support.platforms import CHATTING, transaction
from tests.support.wait import PATIENCE_S, eventually

PLATFORM = CHATTING
MODELS = model("chatter", "echo_chat") + model("slow", "echo_chat", step_ms=50.0)
MODELS += model("odd", "python", file="odd.py", task="chat")
ODD = """
SAMPLES = [{"messages": [{"role": "user", "content": "x"}]}]

def predict(batch):
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}
    return [{"choices": [{"message": message}]} for _ in batch]
"""
FILES = {"odd.py": ODD}
NO_COMPLETION = "the model's output is no chat completion"
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}


def said(*texts: str) -> Any:
    return [{"role": "user", "content": text} for text in texts]


def texts_of(client: OpenAI, conversation: str) -> list[str]:
    """Texts of a conversation, the first one first."""
    pages = client.conversations.items.list(conversation, order="asc", limit=2)
    found = []
    for item in pages:
        TypeAdapter(ConversationItem).validate_python(item.to_dict(), strict=True)
        assert item.type == "message"
        found += [getattr(part, "text", "") for part in item.content]
    return found


def test_a_conversation_is_made_changed_and_deleted(client: OpenAI) -> None:
    made = client.conversations.create(items=said("one", "two"), metadata={"kind": "test"})
    Conversation.model_validate(made.to_dict(), strict=True)
    assert (made.object, made.metadata) == ("conversation", {"kind": "test"})
    assert client.conversations.retrieve(made.id) == made
    changed = client.conversations.update(made.id, metadata={"kind": "other"})
    assert (changed.id, changed.metadata) == (made.id, {"kind": "other"})
    assert client.conversations.update(made.id, metadata=None).metadata == {}
    assert texts_of(client, made.id) == ["one", "two"]
    deleted = client.conversations.delete(made.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (made.id, True, "conversation.deleted")
    retried = client.conversations.delete(made.id, extra_headers={"x-stainless-retry-count": "1"})
    assert retried == deleted, "its answer was lost, and the package asks again"
    for act in (client.conversations.delete, client.conversations.retrieve):
        with pytest.raises(openai.NotFoundError, match="not found"):
            act(made.id)
    assert client.conversations.create().metadata == {}


def test_items_are_appended_listed_retrieved_and_deleted(client: OpenAI) -> None:
    id = client.conversations.create(items=said("one")).id
    items: Any = [*said("two"), CALL, OUTPUT]
    made = client.conversations.items.create(id, items=items)
    assert [item.type for item in made.data] == ["message", "function_call", "function_call_output"]
    assert (made.first_id, made.last_id, made.has_more) == (made.data[0].id, made.data[2].id, False)
    retried = client.conversations.items.create(
        id, items=items, extra_headers={"x-stainless-retry-count": "1"}
    )
    assert retried == made, "its answer was lost, and the package asks again"
    newest = list(client.conversations.items.list(id, limit=1))
    assert [item.id for item in newest[:3]] == [item.id for item in reversed(made.data)]
    assert len(newest) == 4
    page = client.conversations.items.list(
        id, order="asc", after=str(made.first_id), limit=1, include=["message.output_text.logprobs"]
    )
    assert [item.id for item in page.data] == [made.data[1].id]
    one = client.conversations.items.retrieve(str(made.last_id), conversation_id=id)
    assert one == made.data[2]
    left = client.conversations.items.delete(str(made.last_id), conversation_id=id)
    assert left == client.conversations.retrieve(id)
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(str(made.last_id), conversation_id=id)
    again = client.conversations.items.create(id, items=[made.data[0].to_dict()])  # type: ignore[list-item]
    assert again.data[0].id != made.data[0].id, "two items have two ids"
    assert len(list(client.conversations.items.list(id))) == 4


def test_a_retry_is_one_for_minutes(client: OpenAI, platform: Platform) -> None:
    id = client.conversations.create(items=said("yes")).id
    with transaction(platform) as tx:
        earlier = "UPDATE conversation_items SET created_at = created_at - interval '6 minutes'"
        tx.execute(text(f"{earlier} WHERE conversation_id = :id"), {"id": ids.parse("conv", id)})
    for _ in range(2):
        client.conversations.items.create(
            id, items=said("yes"), extra_headers={"x-stainless-retry-count": "1"}
        )
    assert texts_of(client, id) == ["yes", "yes"], "the first one is another request's"


def test_what_is_wrong_with_items_is_said_with_their_place(client: OpenAI) -> None:
    id = client.conversations.create().id
    cases: list[tuple[Any, str]] = [
        ([{"role": "nobody", "content": "x"}], "items[0].role"),
        ([*said("x"), {"type": "reasoning_of_mine"}], "items[1].type"),
        (said(*["x"] * 21), "items"),
        ([], "items"),
    ]
    for items, param in cases:
        with pytest.raises(openai.BadRequestError) as caught:
            client.conversations.items.create(id, items=items)
        assert caught.value.param == param
    with pytest.raises(openai.BadRequestError) as refused:
        client.conversations.items.list(id, after="msg_1")
    assert refused.value.param == "after"
    assert texts_of(client, id) == []


def test_what_is_no_text_is_refused_with_its_place_before_anything_is_stored(
    client: OpenAI, platform: Platform
) -> None:
    made = client.conversations.create()
    items, one = f"/v1/conversations/{made.id}/items", f"/v1/conversations/{made.id}"
    item = '{"items": [{"role": "user", "content": "x"}, {"role": "user", %s}]}'
    told = '{"items": [{"type": "function_call_output", "call_id": "%s", "output": "x"}]}'
    asked = '{"model": "chatter", "input": %s}'
    for bad, words in (("\\ud800", "lone surrogate"), ("\\u0000", "NUL")):
        cases = [
            (items, item % f'"content": "{bad}"', "items[1].content"),
            (items, item % f'"content": "x", "id": "{bad}"', "items[1].id"),
            (items, told % bad, "items[0].call_id"),
            ("/v1/conversations", item % f'"content": "{bad}"', "items[1].content"),
            ("/v1/conversations", f'{{"metadata": {{"a": "{bad}"}}}}', "metadata.a"),
            ("/v1/responses", asked % f'"x", "metadata": {{"a": "{bad}"}}', "metadata.a"),
            ("/v1/responses", asked % f'"x", "user": "{bad}"', "user"),
            ("/v1/responses", asked % f'"x", "prompt_cache_key": "{bad}"', "prompt_cache_key"),
            ("/v1/responses", asked % f'[{{"role": "user", "content": "x", "id": "{bad}"}}]',
             "input[0].id"),
        ]  # fmt: skip
        with httpx.Client(base_url=platform.url, headers=bearer(client.api_key)) as http:
            for path, body, place in cases:
                answer = http.post(path, content=body, headers={"Content-Type": "application/json"})
                assert answer.status_code == 400, (path, body, answer.text)
                error = answer.json()["error"]
                assert error["param"] == place, (path, body, answer.text)
                assert words in error["message"]
            body = f'{{"metadata": {{"a": "{bad}"}}}}'
            changed = http.post(one, content=body, headers={"Content-Type": "application/json"})
            assert changed.status_code == 400, changed.text
    assert texts_of(client, made.id) == []


def test_a_field_whose_name_is_escaped_is_that_field(client: OpenAI, platform: Platform) -> None:
    id = client.conversations.create(items=said("one two three")).id
    asked = '"model": "chatter", "input": "four", "background": true'
    body = f'{{{asked}, "\\u0063onversation": "{id}"}}'
    with httpx.Client(base_url=platform.url, headers=bearer(client.api_key)) as http:
        headers = {"Content-Type": "application/json"}
        made = http.post("/v1/responses", content=body, headers=headers).json()
    assert messages_of(platform, made["id"]) == said("one two three", "four")


def test_a_conversation_holds_a_bounded_number_of_bytes(client: OpenAI) -> None:
    id = client.conversations.create().id
    large = said("x" * 1_000_000)
    for _ in range(8):
        client.conversations.items.create(id, items=large)
    with pytest.raises(openai.BadRequestError, match="8,388,608 bytes"):
        client.conversations.items.create(id, items=large)
    with pytest.raises(openai.APIStatusError, match="1,048,576") as caught:
        client.conversations.items.create(id, items=said("x" * 1_100_000))
    assert caught.value.status_code == 413


def test_another_tenant_sees_no_conversation(client: OpenAI, platform: Platform) -> None:
    made = client.conversations.create(items=said("one"))
    [item] = client.conversations.items.list(made.id).data
    with openai_of(platform, "conversations-other") as other:
        with pytest.raises(openai.NotFoundError):
            other.conversations.retrieve(made.id)
        with pytest.raises(openai.NotFoundError):
            other.conversations.items.retrieve(str(item.id), conversation_id=made.id)
    with httpx.Client(base_url=platform.url, headers=bearer(client.api_key)) as http:
        assert http.get("/v1/conversations/nothing").status_code == 404
        assert http.get(f"/v1/conversations/{made.id}/items/a%00b").status_code == 400


def test_the_scope_infer_goes_on_with_what_is_stored_but_reads_none_of_it(
    platform: Platform,
) -> None:
    tenant = "conversations-infer"
    with openai_of(platform, tenant) as whole:
        with openai_of(platform, tenant, scopes=frozenset({"infer"})) as caller:
            id = whole.conversations.create(items=said("one")).id
            first = caller.responses.create(model="chatter", input="two")
            asked: Any = {"model": "chatter", "input": "three"}
            caller.responses.create(**asked, previous_response_id=first.id)
            caller.responses.create(**asked, conversation=id)
            for act, one in (
                (caller.responses.retrieve, first.id),
                (caller.conversations.retrieve, id),
                (caller.conversations.items.list, id),
            ):
                with pytest.raises(openai.PermissionDeniedError):
                    act(one)
            with pytest.raises(openai.PermissionDeniedError):
                caller.conversations.items.create(id, items=said("x"))
        assert texts_of(whole, id) == ["one", "three", "three"]


def test_appends_at_once_keep_every_item_in_one_order(client: OpenAI) -> None:
    id = client.conversations.create().id
    asked = [said(*(f"{one}-{n}" for n in range(5))) for one in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda items: client.conversations.items.create(id, items=items), asked))
    found = texts_of(client, id)
    together = [found[n : n + 5] for n in range(0, 40, 5)]
    assert sorted(together) == [[one["content"] for one in items] for items in asked]


def test_a_response_goes_on_with_a_conversation_and_is_appended_to_it(client: OpenAI) -> None:
    id = client.conversations.create(items=said("one two three")).id
    asked: Any = {"model": "chatter", "input": "four five"}
    counted = client.responses.input_tokens.count(**asked, conversation=id)
    first = client.responses.create(**asked, conversation=id)
    assert (first.output_text, first.status) == ("four five", "completed")
    assert first.conversation is not None
    assert first.conversation.id == id
    assert client.responses.retrieve(first.id).conversation == first.conversation
    assert first.usage is not None
    assert first.usage.input_tokens == counted.input_tokens > 0
    assert texts_of(client, id) == ["one two three", "four five", "four five"]
    items = client.conversations.items.list(id, order="asc").data
    assert items[-1].id == first.output[0].id
    stream = client.responses.create(
        model="chatter", input="six", conversation={"id": id}, store=False, stream=True
    )
    [last] = [event for event in stream if event.type == "response.completed"]
    assert last.response.output_text == "six"
    assert texts_of(client, id)[3:] == ["six", "six"]
    cut = client.responses.create(
        model="chatter", input="seven eight", conversation=id, max_output_tokens=1
    )
    assert cut.status == "incomplete"
    assert texts_of(client, id)[5:] == ["seven eight", cut.output_text]


def messages_of(platform: Platform, response: str) -> Any:
    """Messages that the model of a response in the background gets."""
    with transaction(platform) as tx:
        query = text("SELECT input FROM items WHERE job_id = :job")
        return orjson.loads(tx.scalar(query, {"job": ids.parse("resp", response)}))["messages"]


def ended(client: OpenAI, id: str) -> Response:
    def look() -> Response | None:
        found = client.responses.retrieve(id)
        return None if found.status in ("queued", "in_progress") else found

    found = eventually(look, PATIENCE_S)
    assert found is not None
    return found


def test_what_the_background_brings_is_appended_once_it_has_ended(
    client: OpenAI, platform: Platform
) -> None:
    id = client.conversations.create(items=said("one")).id
    asked: Any = {"conversation": id, "background": True}
    slow = client.responses.create(model="slow", input="two three four", **asked)
    assert ended(client, slow.id).status == "completed"
    assert texts_of(client, id) == ["one"] + ["two three four"] * 2
    assert messages_of(platform, slow.id) == said("one", "two three four")
    gone = client.responses.create(model="chatter", input="five", **asked)
    ended(client, gone.id)
    client.responses.delete(gone.id)
    assert texts_of(client, id)[3:] == ["five", "five"], "though nobody looked before"


def test_a_response_that_fails_appends_nothing(client: OpenAI) -> None:
    id = client.conversations.create().id
    asked: Any = {"model": "slow", "input": "one " * 50, "conversation": id}
    with pytest.raises(openai.APIStatusError) as caught:
        client.with_options(max_retries=0).responses.create(**asked, extra_body={"timeout_ms": 100})
    assert caught.value.status_code == 504
    stopped = client.responses.create(**asked, background=True)
    client.responses.cancel(stopped.id)
    assert ended(client, stopped.id).status in ("cancelled", "failed")
    assert texts_of(client, id) == []


def test_an_output_that_is_no_completion_is_a_response_that_failed(client: OpenAI) -> None:
    id = client.conversations.create().id
    made = client.responses.create(model="odd", input="x", conversation=id, background=True)
    found = ended(client, made.id)
    assert found.error is not None
    assert (found.status, found.error.message) == ("failed", NO_COMPLETION)
    assert texts_of(client, id) == []
    client.responses.create(model="chatter", input="one", conversation=id)
    assert texts_of(client, id) == ["one", "one"]
    with pytest.raises(openai.InternalServerError, match=NO_COMPLETION):
        client.with_options(max_retries=0).responses.create(model="odd", input="x", store=False)


def test_responses_at_once_keep_every_item(client: OpenAI) -> None:
    id = client.conversations.create().id
    inputs = [f"said-{n}" for n in range(6)]
    with ThreadPoolExecutor(6) as threads:

        def ask(input: str) -> Response:
            return client.responses.create(model="chatter", input=input, conversation=id)

        made = list(threads.map(ask, inputs))
    found = texts_of(client, id)
    pairs = [found[n : n + 2] for n in range(0, 12, 2)]
    asked = zip(inputs, made, strict=True)
    assert sorted(pairs) == [[input, one.output_text] for input, one in asked]


def test_what_a_response_can_not_go_on_with_is_said(client: OpenAI) -> None:
    id = client.conversations.create().id
    asked: Any = {"model": "chatter", "input": "x"}
    made = client.responses.create(**asked, conversation=id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.create(**asked, conversation="conv_01aryz6s41tsv4rrffq69g5fav")
    with pytest.raises(openai.BadRequestError, match=id) as caught:
        client.responses.create(**asked, previous_response_id=made.id)
    assert caught.value.param == "previous_response_id"
    other = client.responses.create(**asked).id
    for refused in ({"conversation": id, "previous_response_id": other}, {"conversation": {}}):
        with pytest.raises(openai.BadRequestError) as wrong:
            client.responses.create(**asked, **refused)
        assert wrong.value.param == "conversation"
