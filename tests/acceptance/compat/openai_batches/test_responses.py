"""Batches of /v1/responses, by the openai package: lines are answered as requests are."""

import json
from typing import Any

from openai import OpenAI
from openai.types.responses import Response

from tests.acceptance.compat.openai_batches.batches import (
    counts_of,
    create,
    ended,
    faults,
    line,
    lines_of,
)
from tests.support.models.entries import model
from tests.support.platforms import CHATTING

PLATFORM = CHATTING
MODELS = model("chatter", "echo_chat") + model("talker", "echo", task="chat")
PATH: Any = "/v1/responses"
CALL = '<tool_call>{"name":"weather","arguments":{"city":"Turin"}}</tool_call>'
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}
ASKED: list[dict[str, Any]] = [
    {"input": "one two three"},
    {"input": [{"role": "user", "content": "one two"}], "instructions": "be brief"},
    {"input": "one two three four", "max_output_tokens": 2, "metadata": {"kind": "test"}},
    {"input": "so " + CALL, "tools": [WEATHER], "user": "ann"},
    {"input": "one", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
]


def plain(response: dict[str, Any]) -> dict[str, Any]:
    """A response without its own ids and times."""
    own = dict.fromkeys(("id", "created_at", "completed_at", "store"))
    items = [{**item, "id": None, "call_id": None} for item in response["output"]]
    ended = response["completed_at"] is not None
    return {**response, **own, "output": items, "ended": ended}


def test_a_line_has_the_response_that_a_request_would_have(client: OpenAI) -> None:
    lines = [line(str(n), PATH, model="chatter", **body) for n, body in enumerate(ASKED)]
    batch = ended(client, create(client, *lines, endpoint=PATH))
    assert (batch.status, batch.endpoint, batch.error_file_id) == ("completed", PATH, None)
    assert counts_of(batch) == (5, 5, 0)
    found = [one["response"]["body"] for one in lines_of(client, batch.output_file_id)]
    made = [client.responses.create(model="chatter", store=False, **body) for body in ASKED]
    assert [plain(one) for one in found] == [plain(one.to_dict()) for one in made]
    responses = [Response.model_validate(one, strict=True) for one in found]
    assert len({one.id for one in responses}) == 5
    times = [(batch.created_at, one.created_at, one.completed_at or 2**40) for one in responses]
    assert all(list(of_one) == sorted(of_one) for of_one in times)
    assert batch.usage is not None
    used = [one.usage for one in responses if one.usage]
    assert batch.usage.input_tokens == sum(one.input_tokens for one in used) > 0
    assert batch.usage.output_tokens == sum(one.output_tokens for one in used) > 0


def test_an_output_that_is_no_completion_is_a_text_as_in_a_batch_of_chats(client: OpenAI) -> None:
    batch = ended(client, create(client, line("a", PATH, model="talker", input="x"), endpoint=PATH))
    [found] = lines_of(client, batch.output_file_id)
    response = Response.model_validate(found["response"]["body"], strict=True)
    assert response.status == "completed"
    assert json.loads(response.output_text)["messages"] == [{"role": "user", "content": "x"}]


def test_what_no_batch_serves_fails_it_or_its_line_alone(client: OpenAI) -> None:
    good = line("good", PATH, model="chatter", input="x")
    bad = [
        line("stream", PATH, model="chatter", input="x", stream=True),
        line("background", PATH, model="chatter", input="x", background=True),
        line("previous", PATH, model="chatter", input="x", previous_response_id="resp_1"),
    ]
    refused = faults(ended(client, create(client, good, *bad, endpoint=PATH)))
    wanted = ["body.stream", "body.background", "body.previous_response_id"]
    assert [(fault.code, fault.param) for fault in refused] == [
        ("unsupported_parameter", param) for param in wanted
    ]
    alone = {"extra_body": {"on_invalid": "fail_item"}}
    batch = ended(client, create(client, good, *bad, endpoint=PATH, **alone))
    assert counts_of(batch) == (4, 1, 3)
    errors = lines_of(client, batch.error_file_id)
    assert [one["error"]["param"] for one in errors] == wanted
