"""Responses in the background: jobs of one item, streamed from any event on."""

from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response

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
from tests.support.children import kill
from tests.support.platforms import CHATTING, supervised
from tests.support.wait import eventually

PLATFORM = CHATTING
MODELS = responses.MODELS
LONG = " ".join(f"word{n}" for n in range(120))


def ended(client: openai.OpenAI, id: str) -> Response:
    def look() -> Response | None:
        found = client.responses.retrieve(id)
        return None if found.status in ("queued", "in_progress") else found

    found = eventually(look)
    assert found is not None
    return found


def test_a_response_in_the_background_is_a_job(client: openai.OpenAI, http: httpx.Client) -> None:
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
def test_a_stream_can_be_resumed_at_any_event(client: openai.OpenAI, asked: Any) -> None:
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


def test_a_stream_shows_the_text_before_its_end(client: openai.OpenAI) -> None:
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


def test_a_stream_goes_on_when_its_worker_is_killed(
    client: openai.OpenAI, platform: Platform
) -> None:
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


def test_a_cancelled_response_ends_its_streams(client: openai.OpenAI) -> None:
    made = client.responses.create(model="slow", input=LONG, background=True)
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


def test_a_response_that_fails_says_why(client: openai.OpenAI) -> None:
    made = client.responses.create(model="chatter", input="word " * 9000, background=True)
    done = ended(client, made.id)
    assert done.status == "failed"
    assert done.error is not None
    assert (done.error.code, "9000 tokens" in done.error.message) == ("invalid_prompt", True)
    events = list(client.responses.retrieve(made.id, stream=True))
    assert events[-1].type == "response.failed"


def test_a_conversation_waits_for_its_response(client: openai.OpenAI) -> None:
    made = client.responses.create(model="slow", input=LONG, background=True)
    with pytest.raises(openai.BadRequestError, match="has not ended"):
        client.responses.create(model="chatter", input="x", previous_response_id=made.id)
    client.responses.cancel(made.id)


@pytest.mark.parametrize("background", [True, False])
def test_a_key_makes_one_response(http: httpx.Client, background: bool) -> None:
    body = {"model": "chatter", "input": SAID, "background": background}
    named = {"Idempotency-Key": f'"in the background: {background}"'}
    first, again = (http.post("/v1/responses", json=body, headers=named) for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"
