"""The platform that the tests of the Responses API share, and what they ask."""

from collections.abc import Iterable
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent

from tests.support.models.entries import model

MODELS = model("chatter", "echo_chat") + model("slow", "echo_chat", step_ms=50.0)
SAID = "one two three four five"
CALL = '<tool_call>{"name":"weather","arguments":{"city":"Turin"}}</tool_call>'
TOOLS: Any = [
    {
        "type": "function",
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": False,
    }
]


def numbers_of(events: Iterable[ResponseStreamEvent]) -> list[int]:
    return [event.sequence_number for event in events]


def last_of(events: list[ResponseStreamEvent]) -> Response:
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete", "response.failed")
    return last.response


def text_of(events: Iterable[ResponseStreamEvent]) -> str:
    return "".join(one.delta for one in events if one.type == "response.output_text.delta")
