"""Grammar of a request, as text that llguidance compiles.

Calls of tools are written as Hermes has them (jobs/models/inputs/tool_calls.py). JSON may have a
space, or a line break with indentation, where JSON allows any: small models would go on with blanks
until their tokens are used up.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.models.inputs.generation import GenerationRequest
from jobs.models.inputs.structured.constraint import ANY_OBJECT, Constraint
from jobs.models.inputs.structured.tools import ToolUse

_BLANK = r" |\r?\n[ \t]{0,20}"
_OPEN, _CLOSE = "<tool_call>\n", "\n</tool_call>"
_ANY_TEXT = r"TEXT: /(?s:.*)/"


def grammar_of(request: GenerationRequest) -> str:
    """Returns the grammar of a request that is constrained."""
    use, constraint = request.tool_use, request.constraint
    if use.callable:
        return _lark("\n".join(_with_calls(use, None if use.is_forced else constraint)))
    assert constraint
    if constraint.kind == "json":
        return _lark(f"start: {_json(constraint.value, constraint.strict)}")
    if constraint.kind == "choice":
        return _lark("start: " + " | ".join(map(_quoted, constraint.value)))
    return _lark(_regex(constraint.value) if constraint.kind == "regex" else constraint.value)


def field_of(request: GenerationRequest) -> str:
    """Returns the field of a request that its grammar comes from."""
    constraint = request.constraint
    return constraint.field if constraint and not request.tool_use.is_forced else "tools"


def _lark(text: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": text}]})


def _regex(expression: str) -> str:
    from llguidance import regex_to_lark

    return f"start: /{regex_to_lark(expression, 'd')}/"


def _json(schema: Mapping[str, Any], strict: bool) -> str:
    """Returns a schema as part of a grammar. Those that aren't strict may have keywords that are
    not enforced."""
    options = {"whitespace_pattern": _BLANK, "lenient": not strict}
    return "%json " + json.dumps({**schema, "x-guidance": options})


def _with_calls(use: ToolUse, answer: Constraint | None) -> Sequence[str]:
    """Returns the rules of a text that may hold calls, or must.

    A model that may leave them out writes any text before the first one, or the answer in place of
    them.
    """
    once = isinstance(use.choice, dict) or not use.parallel
    more = "" if once else f" ({_quoted(chr(10) + _OPEN)} call)*"
    begin = _quoted(_OPEN)
    rules = [f"call: {' | '.join(f'call{n}' for n in range(len(use.callable)))}"]
    rules += [f"call{n}: {_call(function)}" for n, function in enumerate(use.callable)]
    if use.is_forced:
        return [f"start: {begin} call{more}", *rules]
    if answer:
        written = _json(answer.value, answer.strict)
        return [f"start: {begin} call{more} | answer", f"answer: {written}", *rules]
    head = 'head[lazy]: TEXT "<tool_call>"'
    return [f'start: TEXT | head "\\n" call{more}', head, _ANY_TEXT, *rules]


def _call(function: Mapping[str, Any]) -> str:
    """Returns the rule of a call, without the tag that opens it."""
    name = _quoted(function["name"])
    schema = _json(function.get("parameters") or ANY_OBJECT, bool(function.get("strict")))
    begin, end = f'{{"name": {name}, "arguments": ', f"}}{_CLOSE}"
    return f"{_quoted(begin)} {schema} {_quoted(end)}"


def _quoted(text: str) -> str:
    """Returns a text as Lark and JSON write it."""
    return json.dumps(text, ensure_ascii=False)
