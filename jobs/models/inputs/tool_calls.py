"""Tool calls in a model's text, in the format of Hermes, which Qwen, SmolLM and others use too.

<tool_call>
{"name": "weather", "arguments": {"city": "Turin"}}
</tool_call>
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs import ids

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
# What tells where the JSON of a call ends: its strings may hold the tags, but no line break;
# outside them there are neither backslashes nor opening tags.
_MARK = re.compile(rf'{_CLOSE}|{_OPEN}|\\.|"|[\x00-\x1f]')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_NAMED = re.compile(
    r'\s*\{\s*"name"\s*:\s*(?P<name>"(?:[^"\\]|\\.)*")'
    r'(?:\s*,\s*"(?:arguments|parameters)"\s*:\s*(?P<arguments>.*)|[\s,"a-z]*)',
    re.DOTALL,
)
_UNNAMED = re.compile(r'\s*(\{\s*("(n(a(m(e("\s*(:\s*("[^"]*)?)?)?)?)?)?)?)?)?')


@dataclass(frozen=True, slots=True)
class Parsed:
    """Next part of an answer: text that is none of a tool call, and whole calls."""

    text: str
    calls: list[dict[str, Any]] = field(default_factory=list)  #: OpenAI's objects


def _new_id() -> str:
    return ids.new_shown("call")


class ToolCallParser:
    """Separates the calls from the text of one choice, however it is cut into parts.

    What can't be read as JSON, and a call whose arguments are no object, stays text; the last call
    of a text that was cut at its longest length is an unfinished one.
    """

    def __init__(self, new_id: Callable[[], str] = _new_id, *, keeps_blanks: bool = False) -> None:
        """keeps_blanks: parts that are blank after a call are returned."""
        self._new_id, self._keeps_blanks = new_id, keeps_blanks
        self._held = ""  # its end may become a call
        self._at = 0  # place in it of what is not returned yet
        self._begin(0)
        self.calls = 0  #: calls so far

    def feed(self, text: str) -> Parsed:
        """Takes the next part of the text; returns what is certain now."""
        if self._at == len(self._held) and _OPEN[0] not in text:
            return Parsed(self._clean(text))
        self._held = self._held[self._at :] + text
        self._at = 0
        shown: list[str] = []
        calls: list[dict[str, Any]] = []
        self._separate(shown, calls)
        return Parsed(self._clean("".join(shown)), calls)

    def forget(self) -> None:
        """Drops what is held back: the calls are known otherwise."""
        self._begin(len(self._held))

    def finish(self, *, cut: bool = False) -> Parsed:
        """Returns what was held back, at the end of the text; an unfinished call has its arguments
        so far. cut: the text ended at its longest length."""
        shown: list[str] = []
        calls: list[dict[str, Any]] = []
        while rest := self._held[self._at :]:
            if rest.startswith(_OPEN):  # the end token closes it
                is_done = self._take(rest, calls, cut=cut and not self._passed)
            else:  # a part of the opening tag
                is_done = cut and len(rest) > 1
            if is_done:
                self._begin(len(self._held))
            elif not self._passed:
                shown.append(rest)
                self._begin(len(self._held))
            else:  # a string that doesn't end: what comes after the tag is none of the call
                self._show(self._at + self._passed + len(_CLOSE), shown)
                self._separate(shown, calls)
        return Parsed(self._clean("".join(shown)), calls)

    def _separate(self, shown: list[str], calls: list[dict[str, Any]]) -> None:
        """Adds the texts and calls that are certain.

        No character is scanned for more than two opening tags: of two that are both open, the
        later one is in a string of the earlier one, and a third would be outside a string of one.
        """
        held = self._held
        while self._at < len(held):
            start = held.find(_OPEN, self._at)
            if start < 0:
                self._show(len(held) - _start_of(_OPEN, held[self._at :]), shown)
                return
            if start > self._at:
                self._show(start, shown)
            end = self._end()
            if end < 0:
                return
            if self._take(held[self._at : end], calls):
                self._begin(end + len(_CLOSE))
            else:
                self._show(self._at + self._passed + len(_CLOSE), shown)

    def _begin(self, place: int) -> None:
        """Goes on at a place of what is held: what is before it has been returned."""
        self._at = place
        self._scanned = len(_OPEN)  # characters of the call that begins there
        self._quoted = False  # the next one is in a JSON string
        self._broken = False  # they are no JSON
        self._passed = 0  # place of the first closing tag in it, which may be part of a string

    def _show(self, end: int, shown: list[str]) -> None:
        shown.append(self._held[self._at : end])
        self._begin(end)

    def _end(self) -> int:
        """Returns the place of the tag that closes the call at the beginning of what is held, the
        first one where it is no JSON; -1 until it is there."""
        held, at = self._held, self._at
        for found in () if self._broken else _MARK.finditer(held, at + self._scanned):
            mark, self._scanned = found[0], found.end() - at
            if mark == _CLOSE:
                self._passed = self._passed or found.start() - at
                if not self._quoted:
                    return found.start()
            elif mark == '"':
                self._quoted = not self._quoted
            elif self._quoted == (mark < " "):
                self._broken, self._scanned = True, found.start() - at
                break
        if self._broken and not self._passed:
            self._passed = max(held.find(_CLOSE, at + self._scanned) - at, 0)
        if self._broken and self._passed:
            return at + self._passed
        self._scanned = max(self._scanned, len(held) - at - len(_CLOSE) + 1)
        return -1

    def _take(self, block: str, calls: list[dict[str, Any]], *, cut: bool = False) -> bool:
        """Adds the call that a block holds, without its closing tag; False: it is none. cut: it may
        be unfinished; without a name it is dropped."""
        written = block.removeprefix(_OPEN)
        call = read_call(written, cut=cut)
        if call:
            calls.append({"id": self._new_id(), "type": "function", "function": call})
            self.calls += 1
        return call is not None

    def _clean(self, text: str) -> str:
        """Drops the blank lines around calls."""
        return "" if self.calls and not self._keeps_blanks and not text.strip() else text


def _start_of(tag: str, text: str) -> int:
    """Returns how many characters at the end may be the start of a tag."""
    place = text.rfind("<", max(0, len(text) - len(tag)))
    return len(text) - place if place >= 0 and tag.startswith(text[place:]) else 0


def read_call(block: str, *, cut: bool = False) -> dict[str, str] | None:
    """Returns name and arguments, as JSON text, of what is between the tags of a call; None where
    it is no call. cut: it may be unfinished; {}: without a name."""
    call = _read(block)
    if call is None and cut:
        return {} if _UNNAMED.fullmatch(block) else _read_unfinished(block)
    return call


def _read(block: str) -> dict[str, str] | None:
    """Returns name and arguments, as JSON text; None where it is no call."""
    value = _object(block)
    if value is None or not isinstance(value.get("name"), str):
        return None
    given = value.get("arguments")
    given = value.get("parameters") if given is None else given
    arguments = read_arguments(given)
    if arguments is None:
        return None
    if not isinstance(given, str) or not arguments:  # as null, in a text
        given = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return {"name": value["name"], "arguments": given}


def read_arguments(given: Any) -> dict[str, Any] | None:
    """Returns the arguments of a call, {} where they are absent; None where they are neither an
    object nor the JSON text of one. Integers are as large as they are written."""
    if isinstance(given, str) and given:
        return {} if given.strip() == "null" else _object(given)
    if given is None or given == "":
        return {}
    return given if isinstance(given, dict) else None


def _object(text: str) -> dict[str, Any] | None:
    """Reads a JSON object that UTF-8 can hold; None: the text is none."""
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits} is out of range")
    return value


def _read_unfinished(block: str) -> dict[str, str] | None:
    """Returns the name and the arguments so far of a call that was cut; None where it is none."""
    whole = _read(block[: len(block) - _start_of(_CLOSE, block)])
    if whole or not (found := _NAMED.fullmatch(block)):
        return whole
    try:
        return {"name": json.loads(found["name"]), "arguments": found["arguments"] or ""}
    except ValueError:
        return None


def with_tool_calls(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a `chat.completion` whose choices have their calls apart from their texts."""
    return {**completion, "choices": [_choice(choice) for choice in completion["choices"]]}


def _choice(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    message = choice["message"]
    text = message.get("content")
    if not isinstance(text, str) or _OPEN[0] not in text or message.get("tool_calls"):
        return choice
    parser, finish = ToolCallParser(), choice.get("finish_reason")
    parts = [parser.feed(text), parser.finish(cut=finish == "length")]
    calls = [call for part in parts for call in part.calls]
    shown = "".join(part.text for part in parts)
    if not calls and shown == text:
        return choice
    message = {**message, "content": shown.strip() or None}
    if calls:
        message["tool_calls"] = calls
        finish = "tool_calls" if finish == "stop" else finish
    return {**choice, "finish_reason": finish, "message": message}


def wants_calls(body: Mapping[str, Any]) -> bool:
    """Returns True for a request whose model may call tools."""
    return bool(body.get("tools")) and body.get("tool_choice") != "none"
