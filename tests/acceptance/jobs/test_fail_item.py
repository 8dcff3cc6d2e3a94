"""Items with a fault fail alone at every door, where `on_invalid` says so; OpenAI's batches are in
tests/acceptance/compat/openai_batches/test_invalid.py."""

from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic

from millrace import Client
from tests.support.clients import chat
from tests.support.models.entries import model
from tests.support.packages import anthropic_ended
from tests.support.platforms import CHATTING

PLATFORM = CHATTING
LIMITS = {"max_item_bytes": 2000}
MODELS = model("short", "echo", limits=LIMITS)
MODELS += model("talker", "echo_chat", limits=LIMITS) + model("words", "echo_chat")

ITEMS: list[Any] = [
    {"custom_id": "a", "input": "fine"}, {"custom_id": "a", "input": "again"}, {"custom_id": "b"},
    {"custom_id": "c", "input": 1, "colour": 2}, "x" * 3000, {"custom_id": "", "input": 1}, "last",
]  # fmt: skip
LINES = (
    b'{"custom_id": "a", "input": "fine"}\n{"custom_id": "a", "input": "again"}\n'
    b'{"custom_id": "b"}\n{not json\n"%s"\n\n"last"\n' % (b"x" * 3000)
)
TOO_LONG = "the input has 3002 bytes"
OF_ITEMS = [
    None, "items[1].custom_id: custom_id is already that of item 0", "items[2].input: an item",
    "items[3].colour: ", f"items[4]: {TOO_LONG}", "items[5].custom_id: ", None,
]  # fmt: skip
OF_LINES = [
    None, "line 2, custom_id: custom_id is already that of line 1", "line 3, input: an item needs",
    "line 4: not valid JSON", f"line 5: {TOO_LONG}", "line 6: an empty line", None,
]  # fmt: skip


def assert_failed(client: Client, job: str, expected: list[str | None]) -> None:
    """Checks how each item ended: with this beginning of its message, or with success."""
    done = client.jobs.wait(job)
    assert done.state == "completed", done.error
    counts = done.counts
    assert (counts.succeeded, counts.failed) == (2, len(expected) - 2)
    lines = list(client.jobs.results(job, wait=False))
    assert [line["outcome"] == "succeeded" for line in lines] == [it is None for it in expected]
    for line, said in zip(lines, expected, strict=True):
        if said:
            assert line["error"]["code"] == "invalid_input"
            assert line["error"]["message"].startswith(said)
    assert [line["custom_id"] for line in lines[:3]] == ["a", "a", "b"]


def test_items_of_a_request(client: Client, http: httpx.Client) -> None:
    body = {"model": "short", "items": ITEMS}
    assert http.post("/jobs", json=body).status_code == 422
    job = http.post("/jobs", json=body | {"on_invalid": "fail_item"}).json()
    assert_failed(client, job["id"], OF_ITEMS)
    query = {"model": "short", "on_invalid": "fail_item"}
    headers = {"Content-Type": "application/x-ndjson"}
    job = http.post("/jobs", params=query, content=LINES, headers=headers).json()
    assert_failed(client, job["id"], OF_LINES)


def test_lines_of_a_file(client: Client, http: httpx.Client) -> None:
    sent = {"file": ("items.jsonl", LINES)}
    file = http.post("/v1/files", data={"purpose": "batch"}, files=sent).json()["id"]
    body = {"model": "short", "input": {"file": file}, "on_invalid": "fail_item"}
    assert_failed(client, http.post("/jobs", json=body).json()["id"], OF_LINES)


def asked(custom_id: str, text: str = "x", **params: Any) -> Any:
    body = {"model": "talker", "max_tokens": 50, **chat(text)} | params
    return {"custom_id": custom_id, "params": body}


def test_requests_of_a_message_batch(claude: Anthropic) -> None:
    requests: list[Any] = [
        asked("a"), asked("b", model="no-such-model"), asked("c", stream=True), asked("a"),
        asked("d", model="words"), asked("e", max_tokens=0), asked("d"), {"custom_id": "f"},
        asked("g", "x" * 3000), asked("h", model="short"),
    ]  # fmt: skip
    more: Any = {"on_invalid": "fail_item"}
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.batches.create(requests=requests)
    made = claude.messages.batches.create(requests=requests, extra_body=more)
    batch = anthropic_ended(claude, made.id)
    assert (batch.request_counts.succeeded, batch.request_counts.errored) == (2, 8)
    results: list[Any] = list(claude.messages.batches.results(made.id))
    good = [one.custom_id for one in results if one.result.type == "succeeded"]
    errors = [one.result.error.error for one in results if one.result.type == "errored"]
    assert (good, {error.type for error in errors}) == (["a", "d"], {"invalid_request_error"})
    places = [error.message.removeprefix("invalid_input: ").partition(":")[0] for error in errors]
    assert sorted(places) == [
        "requests[1].params.model", "requests[2].params.stream", "requests[3].custom_id",
        "requests[5].params.max_tokens", "requests[6].custom_id", "requests[7].params",
        "requests[8].input", "requests[9].params.model",
    ]  # fmt: skip
    with pytest.raises(anthropic.APIStatusError, match="no request names a chat model"):
        claude.messages.batches.create(
            requests=[asked("a", model="no"), asked("b", model="nor-this")], extra_body=more
        )
