"""The Conversations API, by the openai package as it is, alone and with responses."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.conversations import Conversation, ConversationItem
from pydantic import TypeAdapter

from ops.supervisor.platform import Platform
from tests.support.clients import bearer
from tests.support.models.entries import model
from tests.support.packages import openai_of
from tests.support.platforms import CHATTING

PLATFORM = CHATTING
MODELS = model("chatter", "echo_chat") + model("slow", "echo_chat", step_ms=50.0)
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}


def said(*texts: str) -> Any:
    return [{"role": "user", "content": text} for text in texts]


def texts_of(client: OpenAI, conversation: str) -> list[str]:
    """What was said in a conversation, first things first."""
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


def test_appends_at_once_keep_every_item_in_one_order(client: OpenAI) -> None:
    id = client.conversations.create().id
    asked = [said(*(f"{one}-{n}" for n in range(5))) for one in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda items: client.conversations.items.create(id, items=items), asked))
    found = texts_of(client, id)
    together = [found[n : n + 5] for n in range(0, 40, 5)]
    assert sorted(together) == [[one["content"] for one in items] for items in asked]
