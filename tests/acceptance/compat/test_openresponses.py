"""The requests of openresponses' compliance suite, with its schemas from openresponses-types.
The suite itself is no package: https://github.com/openresponses/openresponses
"""

from typing import Any

import httpx
import pytest

from tests.acceptance.compat import test_responses as responses
from tests.support.clients import events
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S

types = pytest.importorskip("openresponses_types.types")
PLATFORM = CHATTING
MODELS = responses.MODELS
LOCATION = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
LOCATIONS = {"type": "object", "properties": {"location": LOCATION}, "required": ["location"]}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": LOCATIONS,
}
# The model says what it is told: a call, where the suite asks a model that decides by itself.
CALL = '<tool_call>{"name":"get_weather","arguments":{"location":"San_Francisco"}}</tool_call>'
TEMPLATES: dict[str, list[tuple[str, str]]] = {
    "basic-response": [("user", "Say hello in exactly 3 words.")],
    "streaming-response": [("user", "Count from 1 to 5.")],
    "system-prompt": [("system", "You are a pirate."), ("user", "Say hello.")],
    "tool-calling": [("user", CALL)],
    "tool-calling-streaming": [("user", CALL)],
    "multi-turn": [
        ("user", "My name is Alice."),
        ("assistant", "Hello Alice! How can I help you today?"),
        ("user", "What is my name?"),
    ],
}
"""The role and the content of each message."""
EVENTS = {
    next(iter(model.model_fields["type"].annotation)).value: model
    for name, model in vars(types).items()
    if name.endswith("StreamingEvent")
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_of_the_suite_passes(http: httpx.Client, name: str) -> None:
    messages = [
        {"type": "message", "role": role, "content": text} for role, text in TEMPLATES[name]
    ]
    stream, calls = "streaming" in name, "tool" in name
    asked: dict[str, Any] = {"model": "chatter", "stream": stream, "input": messages}
    asked |= {"tools": [WEATHER]} if calls else {}
    answer = http.post("/v1/responses", json=asked, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    found = [one.data for one in events(answer.text.splitlines()) if one.data] if stream else []
    for event in found:
        EVENTS[event["type"]].model_validate(event)
    response = found[-1]["response"] if stream else answer.json()
    types.ResponseResource.model_validate(response)
    assert response["status"] == "completed"
    assert ("function_call" if calls else "message") in [one["type"] for one in response["output"]]
