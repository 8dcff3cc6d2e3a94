"""Tool calls as models of other families write them, in the text of an output: they become the
format of Hermes, which jobs/models/inputs/tool_calls.py reads.

Llama 3: {"name": "weather", "parameters": {"city": "Turin"}}
Mistral: [TOOL_CALLS][{"name": "weather", "arguments": {"city": "Turin"}}]
         [TOOL_CALLS]weather[ARGS]{"city": "Turin"}
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jobs.models.inputs.tool_calls import read_call

HERMES, LLAMA, MISTRAL = "hermes", "llama3_json", "mistral"
_TAGS: Mapping[str, tuple[str, ...]] = {
    LLAMA: ("<|python_tag|>",),
    MISTRAL: ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
}
_BEGINS = re.compile(r'\{\s*"(name|type|function|parameters)"\s*:')
_LOOKED_AT = 32  # characters in which the beginning of a call is seen
# No part of it is tried again shorter: a model may write any number of blanks.
_NAMED = re.compile(r"\s*+([\w.-]++)\s*+(?:\[CALL_ID\][^\[{]*+)?+(?:\[ARGS\])?+\s*+(?=\{)")
_BETWEEN = re.compile(r"(?:\[TOOL_CALLS\]|<\|python_tag\|>|[\s;,\[\]])*+")


def format_of(template: str) -> str:
    """Returns the format of the calls that a chat template shows; Hermes' where it shows none."""
    if "<tool_call>" in template:
        return HERMES
    if _TAGS[MISTRAL][0] in template:
        return MISTRAL
    return LLAMA if '"parameters"' in template and "ipython" in template else HERMES


def tags(tokenizer: Any, form: str) -> dict[int, str]:
    """Returns the special tokens by which calls of a format are told from text, by their ids."""
    found = {tokenizer.token_to_id(tag): tag for tag in _TAGS[form]}
    return {id: tag for id, tag in found.items() if id is not None}


class CallText:
    """Text of one sequence, whose calls are rewritten: from where they begin it is held back, to
    its end.

    names: of tools. A JSON text without the tag of calls may be an answer: it is a call where it
    has the name of a tool, and arguments."""

    def __init__(self, form: str, names: Collection[str]) -> None:
        self._tag, self._names = _TAGS[form][0], names
        self._at_start = form == LLAMA  # a call needs no tag there
        self._held = ""  # its end may become the beginning of calls
        self._parts: list[str] = []  # from that beginning on

    def add(self, text: str) -> str:
        """Takes the next part; returns the text that is certain to be none of a call."""
        if self._parts:
            self._parts.append(text)
            return ""
        held = self._held + text
        at, certain = self._looked_at(held)
        self._held, self._parts = ("", [held[at:]]) if certain else (held[at:], [])
        return held[:at]

    def finish(self, *, cut: bool) -> str:
        """Returns what was held back, its calls rewritten. cut: the text ended at its longest
        length, perhaps within a call."""
        held, self._held, self._parts = "".join(self._parts) or self._held, "", []
        at = held.find(self._tag)
        names = None if at == 0 else self._names
        found = _rewritten(held, names, cut)
        if found is None and at > 0:
            return held[:at] + (_rewritten(held[at:], None, cut) or held[at:])
        return held if found is None else found

    def _looked_at(self, held: str) -> tuple[int, bool]:
        """Returns the place at which calls may begin, and True where they do."""
        if self._at_start:
            begun = held.lstrip()
            blanks = len(held) - len(begun)
            if _BEGINS.match(begun):
                return blanks, True
            if not begun or (begun[0] == "{" and len(begun) < _LOOKED_AT):
                return blanks, False
            self._at_start = False
        at = held.find(self._tag)
        return (at, True) if at >= 0 else (len(held) - self._start_of_tag(held), False)

    def _start_of_tag(self, held: str) -> int:
        """Returns how many characters at the end may be the start of the tag."""
        sizes = range(min(len(self._tag) - 1, len(held)), 0, -1)
        return next((n for n in sizes if self._tag.startswith(held[-n:])), 0)


def _rewritten(text: str, names: Collection[str] | None, cut: bool) -> str | None:
    """Returns a text that begins with calls, with those in the format of Hermes; None: it doesn't.
    names: of tools that may be called; None: any."""
    calls, at = [], 0
    for call, end in _each(text, names):
        calls.append(f"<tool_call>\n{call}\n</tool_call>")
        at = end
    rest = text[_BETWEEN.match(text, at).end() :]  # type: ignore[union-attr]
    if cut and (call := _unfinished(rest, names)):
        calls, rest = [*calls, f"<tool_call>\n{call}"], ""
    if not calls:
        return None
    return "\n".join([*calls, rest] if rest.strip() else calls)


def _head(name: str) -> str:
    return f'{{"name": {json.dumps(name)}, "arguments": '


def _each(text: str, names: Collection[str] | None) -> Iterator[tuple[str, int]]:
    """Yields the calls that a text begins with, and where each ends."""
    decoder, at = json.JSONDecoder(), 0
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        named = _NAMED.match(text, at)
        begin = named.end() if named else at
        try:
            value, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            return
        written = text[begin:at]
        if named:
            written = f"{_head(named[1])}{written}}}"
        elif names is not None and not _has_arguments(value):
            return
        call = read_call(written)
        if call is None or (names is not None and call["name"] not in names):
            return
        yield written, at


def _has_arguments(value: Any) -> bool:
    given = value.get("arguments", value.get("parameters")) if isinstance(value, dict) else None
    return isinstance(given, dict) or (isinstance(given, str) and given != "")


def _unfinished(text: str, names: Collection[str] | None) -> str:
    """Returns the call that a text holds, which was cut; "": it is none."""
    named = _NAMED.match(text)
    written = _head(named[1]) + text[named.end() :] if named else text
    try:
        json.JSONDecoder().raw_decode(written)
    except (ValueError, RecursionError):
        call = read_call(written, cut=True)
    else:
        return ""  # it is whole, and no call
    if call is None or (names is not None and call.get("name") not in names):
        return ""
    return written
