"""Tool calls as models of other families write them, in the text of an output: they become the
format of Hermes, which jobs/models/inputs/tool_calls.py reads.

Llama 3: {"name": "weather", "parameters": {"city": "Turin"}}
Mistral: [TOOL_CALLS][{"name": "weather", "arguments": {"city": "Turin"}}]
         [TOOL_CALLS]weather[ARGS]{"city": "Turin"}
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

HERMES, LLAMA, MISTRAL = "hermes", "llama3_json", "mistral"
_TAGS: Mapping[str, tuple[str, ...]] = {
    LLAMA: ("<|python_tag|>",),
    MISTRAL: ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
}
_BEGINS = re.compile(r'\{\s*"(name|type|function|parameters)"\s*:')
_LOOKED_AT = 32  # characters in which the beginning of a call is seen
_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?\s*(?=\{)")
_BETWEEN = re.compile(r"(?:\[TOOL_CALLS\]|[\s;,\[\]])*")


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
    its end."""

    def __init__(self, form: str) -> None:
        self._tag = _TAGS[form][0]
        self._at_start = form == LLAMA  # a call needs no tag there
        self._held = ""
        self._opened = False

    def add(self, text: str) -> str:
        """Takes the next part; returns the text that is certain to be none of a call."""
        self._held += text
        if self._opened:
            return ""
        before, tag, _ = self._held.partition(self._tag)
        if tag:
            self._opened = True
            self._held = self._held[len(before) :]
            return before
        begun = self._held.lstrip()
        may_be = not begun or (begun[0] == "{" and len(begun) < _LOOKED_AT)
        if self._at_start and (may_be or _BEGINS.match(begun)):
            return ""
        self._at_start = False
        return self._release(len(self._held) - self._start_of_tag())

    def finish(self, *, cut: bool) -> str:
        """Returns what was held back, its calls rewritten. cut: the text ended at its longest
        length, perhaps within a call."""
        held, self._held = self._held, ""
        if not self._opened and not _BEGINS.match(held.lstrip()):
            return held
        written = held.replace(self._tag, "", 1) if self._tag == _TAGS[LLAMA][0] else held
        calls, rest = _calls(written)
        named = _NAMED.match(rest)
        if cut and (named or rest.startswith("{")):
            call = _head(named[1]) + rest[named.end() :] if named else rest
            calls, rest = [*calls, f"<tool_call>\n{call}"], ""
        return "\n".join([*calls, rest] if rest.strip() else calls) if calls else held

    def _release(self, size: int) -> str:
        text, self._held = self._held[:size], self._held[size:]
        return text

    def _start_of_tag(self) -> int:
        """Returns how many characters at the end may be the start of the tag."""
        sizes = range(min(len(self._tag) - 1, len(self._held)), 0, -1)
        return next((n for n in sizes if self._tag.startswith(self._held[-n:])), 0)


def _calls(text: str) -> tuple[list[str], str]:
    """Returns the calls that a text begins with, in the format of Hermes, and what follows."""
    calls, rest = [], text
    for call, after in _each(text):
        calls.append(f"<tool_call>\n{call}\n</tool_call>")
        rest = after
    between = _BETWEEN.match(rest)
    return calls, rest[between.end() :] if between else rest


def _head(name: str) -> str:
    return f'{{"name": {json.dumps(name)}, "arguments": '


def _each(text: str) -> Iterator[tuple[str, str]]:
    decoder, at = json.JSONDecoder(), 0
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        named = _NAMED.match(text, at)
        begin = named.end() if named else at
        try:
            value, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            return
        written = text[begin:end]
        if named:
            written = f"{_head(named[1])}{written}}}"
        elif not isinstance(value, dict) or not isinstance(value.get("name"), str):
            return
        yield written, text[end:]
        at = end
