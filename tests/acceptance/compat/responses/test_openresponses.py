"""The requests of openresponses' compliance suite, with its schemas from openresponses-types.
The suite itself is no package: https://github.com/openresponses/openresponses
"""

from typing import Any

import httpx
import pytest

from tests.acceptance.compat.responses import responses
from tests.support.clients import events
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S

types = pytest.importorskip("openresponses_types.types")
PLATFORM = CHATTING
MODELS = responses.MODELS
CALL = '<tool_call>{"name":"get_weather","arguments":{"location":"San_Francisco"}}</tool_call>'
LOCATION = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": LOCATION},
        "required": ["location"],
    },
}


def message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


# The model says what it is told: a call, where the suite asks a model that decides by itself.
CALLS: dict[str, Any] = {"input": [message("user", CALL)], "tools": [WEATHER]}
TEMPLATES: dict[str, tuple[dict[str, Any], str]] = {
    "basic-response": ({"input": [message("user", "Say hello in exactly 3 words.")]}, "message"),
    "streaming-response": ({"input": [message("user", "Count from 1 to 5.")]}, "message"),
    "system-prompt": (
        {"input": [message("system", "You are a pirate."), message("user", "Say hello.")]},
        "message",
    ),
    "tool-calling": (CALLS, "function_call"),
    "tool-calling-streaming": (CALLS, "function_call"),
    "multi-turn": (
        {
            "input": [
                message("user", "My name is Alice."),
                message("assistant", "Hello Alice! How can I help you today?"),
                message("user", "What is my name?"),
            ]
        },
        "message",
    ),
}
EVENTS = {
    next(iter(model.model_fields["type"].annotation)).value: model
    for name, model in vars(types).items()
    if name.endswith("StreamingEvent")
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_of_the_suite_passes(http: httpx.Client, name: str) -> None:
    body, expected = TEMPLATES[name]
    stream = "streaming" in name
    asked = {"model": "chatter", "stream": stream, **body}
    answer = http.post("/v1/responses", json=asked, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    response = events_of(answer.text)[-1]["response"] if stream else answer.json()
    types.ResponseResource.model_validate(response)
    assert response["status"] == "completed"
    assert expected in [item["type"] for item in response["output"]]


def events_of(text: str) -> list[dict[str, Any]]:
    """Returns the events of a stream, each checked against its schema."""
    found = [event.data for event in events(text.splitlines()) if event.data]
    for event in found:
        EVENTS[event["type"]].model_validate(event)
    return found
