"""Tool calls in a model's text, in the format of Hermes, which Qwen, SmolLM and others use too.

<tool_call>
{"name": "weather", "arguments": {"city": "Turin"}}
</tool_call>
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from jobs import ids

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class Parsed:
    """Next part of an answer: text that is none of a tool call, and whole calls."""

    text: str
    calls: list[dict[str, Any]] = field(default_factory=list)  #: OpenAI's objects


def _new_id() -> str:
    return ids.new_shown("call")


class ToolCallParser:
    """Separates the calls from the text of one choice, however it is cut into parts.

    A call that is not closed, or whose JSON can't be read, stays text.
    """

    def __init__(self, new_id: Callable[[], str] = _new_id, *, keeps_blanks: bool = False) -> None:
        """keeps_blanks: parts that are blank after a call are returned."""
        self._new_id, self._keeps_blanks = new_id, keeps_blanks
        self._held = ""  # may become a call
        self.calls = 0  #: calls so far

    def feed(self, text: str) -> Parsed:
        """Takes the next part of the text; returns what is certain now."""
        self._held += text
        shown: list[str] = []
        calls: list[dict[str, Any]] = []
        while self._held:
            start = self._held.find(_OPEN)
            if start < 0:
                kept = _start_of_tag(self._held)
                shown.append(self._held[: len(self._held) - kept])
                self._held = self._held[len(self._held) - kept :]
                break
            shown.append(self._held[:start])
            end = self._held.find(_CLOSE, start)
            if end < 0:
                self._held = self._held[start:]
                break
            self._take(self._held[start:end], shown, calls)
            self._held = self._held[end + len(_CLOSE) :]
        return Parsed(self._clean("".join(shown)), calls)

    def finish(self) -> Parsed:
        """Returns what was held back, at the end of the text."""
        rest, self._held = self._held, ""
        shown: list[str] = []
        calls: list[dict[str, Any]] = []
        if rest.startswith(_OPEN):  # the end token stands for the closing tag
            self._take(rest, shown, calls, close="")
            rest = "".join(shown)
        return Parsed(self._clean(rest), calls)

    def _take(
        self, block: str, shown: list[str], calls: list[dict[str, Any]], close: str = _CLOSE
    ) -> None:
        call = _read(block.removeprefix(_OPEN))
        if call is None:
            shown.append(block + close)
            return
        calls.append({"id": self._new_id(), "type": "function", "function": call})
        self.calls += 1

    def _clean(self, text: str) -> str:
        """Drops the blank lines around calls."""
        return "" if self.calls and not self._keeps_blanks and not text.strip() else text


def _start_of_tag(text: str) -> int:
    """Returns how many characters at the end may be the start of a tag."""
    place = text.rfind("<", max(0, len(text) - len(_OPEN)))
    return len(text) - place if place >= 0 and _OPEN.startswith(text[place:]) else 0


def _read(block: str) -> dict[str, str] | None:
    """Returns name and arguments, as JSON text; None where it is no call."""
    try:
        value = orjson.loads(block)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if not isinstance(arguments, str):
        arguments = orjson.dumps(arguments).decode()
    return {"name": value["name"], "arguments": arguments}


def with_tool_calls(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a `chat.completion` whose choices have their calls apart from their texts."""
    return {**completion, "choices": [_choice(choice) for choice in completion["choices"]]}


def _choice(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    message = choice["message"]
    text = message.get("content")
    if not isinstance(text, str) or _OPEN not in text or message.get("tool_calls"):
        return choice
    parser = ToolCallParser()
    parts = [parser.feed(text), parser.finish()]
    calls = [call for part in parts for call in part.calls]
    if not calls:
        return choice
    content = "".join(part.text for part in parts).strip() or None
    ended = {"finish_reason": "tool_calls"} if choice.get("finish_reason") == "stop" else {}
    return {**choice, **ended, "message": {**message, "content": content, "tool_calls": calls}}


def wants_calls(body: Mapping[str, Any]) -> bool:
    """Returns True for a request whose model may call tools."""
    return bool(body.get("tools")) and body.get("tool_choice") != "none"
