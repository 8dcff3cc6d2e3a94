"""Responses in the background that are followed: what was written of the text that grew, and what
is left of the message that the worker made of it."""

from typing import Any

import pytest

from api.compat.openai.responses.background import unwritten
from jobs.dialects.responses.output import Event, OutputBuilder
from jobs.errors import MillraceError
from jobs.models.inputs.tool_calls import with_tool_calls
from tests.support.cases import each

CALL = '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>'
TEXTS = [
    f"One {CALL}", f"One {CALL} Two {CALL} Three", f"{CALL}\n{CALL}\n", f"  \n{CALL} Two  ",
    "\n Hello <toolbox> <tool", "a < b", " blank ", f"<tool_call>{{</tool_call> x {CALL} ",
]  # fmt: skip
CUT = ['Hello <tool_call>\n{"na', "Hello  <tool", f"One {CALL} Two {CALL[:40]}", "<", "<to"]


def followed(text: str, fed: str, finish: str) -> list[Event]:
    """Returns the events of a text that was read so far as `fed` before it ended."""
    message = {"role": "assistant", "content": text}
    completion = {"choices": [{"message": message, "finish_reason": finish}]}
    made = with_tool_calls(completion)["choices"][0]["message"]
    builder = OutputBuilder("x", tools=True, piece=4)
    events = builder.feed(fed)
    rest = unwritten(made, fed, tools=True)
    return events + builder.take_message(rest, complete=finish == "stop")


def items(events: list[Event]) -> list[Any]:
    return [one["item"] for one in events if one["type"] == "response.output_item.done"]


def test_a_response_has_its_text_and_its_calls_once_wherever_it_was_read() -> None:
    cases = [(text, "stop") for text in TEXTS] + [(text, "length") for text in [*TEXTS, *CUT]]
    for (text, finish), case in each(cases):
        with case:
            expected = shown(followed(text, "", finish))
            for size in range(len(text) + 1):
                assert shown(followed(text, text[:size], finish)) == expected


def shown(events: list[Event]) -> tuple[str, str, list[str]]:
    """Returns the words of the items, those of the deltas, and the calls."""
    deltas = [one["delta"] for one in events if one["type"] == "response.output_text.delta"]
    done = items(events)
    texts = [one["content"][0]["text"] for one in done if one["type"] == "message"]
    calls = [one["arguments"] for one in done if one["type"] == "function_call"]
    return "".join("".join(texts).split()), "".join("".join(deltas).split()), calls


def test_a_response_that_was_generated_anew_is_an_error() -> None:
    for tools in (True, False):
        with pytest.raises(MillraceError, match="generated anew"):
            unwritten({"content": "Onetwo"}, "One ", tools=tools)
    assert unwritten({"content": None}, "", tools=False)["content"] == ""
