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

OPEN = "<tool_call>"  #: Beginning of a call in a text.
_OPEN, _CLOSE = OPEN, "</tool_call>"
# What tells where the JSON of a call ends: its strings may hold the closing tag, but no line break.
_MARK = re.compile(rf'{_CLOSE}|\\.|"|[\x00-\x1f]')
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
        self._held = ""  # may become a call
        self._scanned = 0  # characters of it
        self._quoted = False  # the next one is in a JSON string
        self._passed = 0  # place of the first closing tag in it, which may be part of a string
        self.calls = 0  #: calls so far

    def feed(self, text: str) -> Parsed:
        """Takes the next part of the text; returns what is certain now."""
        self._held += text
        shown: list[str] = []
        calls: list[dict[str, Any]] = []
        while self._held:
            start = self._held.find(_OPEN)
            if start < 0:
                kept = _start_of(_OPEN, self._held)
                shown.append(self._held[: len(self._held) - kept])
                self._held = self._held[len(self._held) - kept :]
                break
            shown.append(self._held[:start])
            self._held = self._held[start:]
            end = self._end()
            if end < 0:
                break
            if not self._take(self._held[:end], calls):
                end = self._passed
                shown.append(self._held[: end + len(_CLOSE)])
            self._drop(end + len(_CLOSE))
        return Parsed(self._clean("".join(shown)), calls)

    def forget(self) -> None:
        """Drops what is held back: the calls are known otherwise."""
        self._drop(len(self._held))

    def finish(self, *, cut: bool = False) -> Parsed:
        """Returns what was held back, at the end of the text; an unfinished call has its arguments
        so far. cut: the text ended at its longest length."""
        shown: list[str] = []
        calls: list[dict[str, Any]] = []
        while self._held:
            is_call, is_cut = self._held.startswith(_OPEN), cut and not self._passed
            if is_call:  # the end token closes it
                is_done = self._take(self._held, calls, cut=is_cut)
            else:  # a part of the opening tag
                is_done = cut and len(self._held) > 1
            if is_done:
                self._drop(len(self._held))
            elif not self._passed:
                shown.append(self._held)
                self._drop(len(self._held))
            else:  # a string that doesn't end: what comes after the tag is none of the call
                end = self._passed + len(_CLOSE)
                shown.append(self._held[:end])
                self._drop(end)
                rest = self.feed("")
                shown.append(rest.text)
                calls += rest.calls
        return Parsed(self._clean("".join(shown)), calls)

    def _end(self) -> int:
        """Returns the place of the tag that closes the call at the beginning of what is held; -1
        until it is there."""
        for found in _MARK.finditer(self._held, max(self._scanned, len(_OPEN))):
            self._scanned, mark = found.end(), found[0]
            if mark == _CLOSE:
                self._passed = self._passed or found.start()
                if not self._quoted:
                    return found.start()
            elif mark == '"':
                self._quoted = not self._quoted
            elif self._quoted and mark < " ":
                self._quoted = False  # it is no JSON
                if self._passed:
                    return self._passed
        self._scanned = max(self._scanned, len(self._held) - len(_CLOSE) + 1)
        return -1

    def _take(self, block: str, calls: list[dict[str, Any]], *, cut: bool = False) -> bool:
        """Adds the call that a block holds, without its closing tag; False: it is none. cut: it may
        be unfinished; without a name it is dropped."""
        written = block.removeprefix(_OPEN)
        call = _read(written)
        if call is None and cut:
            if _UNNAMED.fullmatch(written):
                return True
            call = _read_unfinished(written)
        if call is None:
            return False
        calls.append({"id": self._new_id(), "type": "function", "function": call})
        self.calls += 1
        return True

    def _drop(self, characters: int) -> None:
        self._held = self._held[characters:]
        self._scanned, self._quoted, self._passed = 0, False, 0

    def _clean(self, text: str) -> str:
        """Drops the blank lines around calls."""
        return "" if self.calls and not self._keeps_blanks and not text.strip() else text


def _start_of(tag: str, text: str) -> int:
    """Returns how many characters at the end may be the start of a tag."""
    place = text.rfind("<", max(0, len(text) - len(tag)))
    return len(text) - place if place >= 0 and tag.startswith(text[place:]) else 0


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
    if not isinstance(given, str):
        given = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return {"name": value["name"], "arguments": given or "{}"}


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
