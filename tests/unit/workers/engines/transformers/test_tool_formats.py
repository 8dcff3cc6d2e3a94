"""Tool calls in formats of Llama and Mistral become those of Hermes, however the text is cut."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from jobs.models.inputs.generation import GenerationRequest, Sampling
from jobs.models.inputs.structured.tools import ToolUse
from jobs.models.inputs.tool_calls import ToolCallParser
from tests.support.generation import tiny_llama
from workers.engines.generator import NewSequence, Prompt
from workers.engines.transformers.child.sequences import LiveSequence
from workers.engines.transformers.tool_formats import (
    HERMES,
    LLAMA,
    MISTRAL,
    CallText,
    format_of,
)

TOOLS = ("weather", "time")
TURIN = {"city": "Turin; [a]", "n": 2**70}
WEATHER = ("weather", TURIN)
LLAMA_CALL = json.dumps({"name": "weather", "parameters": TURIN})
ARGUED = json.dumps({"name": "weather", "arguments": TURIN})


def read(form: str, text: str, size: int, *, cut: bool = False) -> tuple[str, list[Any]]:
    """Text and calls of an output that comes in parts of a size."""
    calls, parser = CallText(form, TOOLS), ToolCallParser()
    parts = [calls.add(text[at : at + size]) for at in range(0, len(text), size)]
    parts.append(calls.finish(cut=cut))
    found = [*map(parser.feed, parts), parser.finish(cut=cut)]
    shown = "".join(one.text for one in found).strip()
    return shown, [call["function"] for one in found for call in one.calls]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("form", "text", "shown", "calls"),
    [
        (LLAMA, LLAMA_CALL, "", [WEATHER]),
        (LLAMA, f"<|python_tag|>{LLAMA_CALL}", "", [WEATHER]),
        (LLAMA, f"{LLAMA_CALL}; {LLAMA_CALL}", "", [WEATHER] * 2),
        (LLAMA, f"Let me see. <|python_tag|>{LLAMA_CALL}", "Let me see.", [WEATHER]),
        (LLAMA, '{"answer": "a JSON text that is no call at all"}', None, []),
        (LLAMA, '{"name": "Ada Lovelace", "born": 1815}', None, []),
        (LLAMA, '{"name": "Ada", "parameters": {}}', None, []),
        (LLAMA, '{"name": "weather"}', None, []),
        (LLAMA, '{"name": "weather", "parameters": [1, 2]}', None, []),
        (LLAMA, '{"name": "weather", "parameters": {"a": NaN}}', None, []),
        (LLAMA, '{"name": "weather", "arguments": "{}"} {"a": 1}', '{"a": 1}', [("weather", {})]),
        (
            LLAMA,
            f'{{"name": "x", "y": 1}} <|python_tag|>{LLAMA_CALL}',
            '{"name": "x", "y": 1}',
            [WEATHER],
        ),
        (LLAMA, '<|python_tag|>{"name": "Ada"}', "", [("Ada", {})]),
        (LLAMA, '<|python_tag|>{"name": "Ada", "parameters": 5}', None, []),
        (LLAMA, '{"name": 5, "parameters": {}}', None, []),
        (LLAMA, "plain < text", None, []),
        (LLAMA, "", None, []),
        (MISTRAL, f"[TOOL_CALLS][{ARGUED}]", "", [WEATHER]),
        (MISTRAL, f"[TOOL_CALLS] [{ARGUED}, {ARGUED}]", "", [WEATHER] * 2),
        (MISTRAL, f"So: [TOOL_CALLS]weather[ARGS]{json.dumps(TURIN)}", "So:", [WEATHER]),
        (MISTRAL, f"[TOOL_CALLS]weather{json.dumps(TURIN)}" * 2, "", [WEATHER] * 2),
        (MISTRAL, "[1, 2] [TOOL", None, []),
        (MISTRAL, LLAMA_CALL, None, []),
        (MISTRAL, "[TOOL_CALLS] no call", None, []),
        (MISTRAL, '[TOOL_CALLS]weather{"a": 1e999}', None, []),
        (MISTRAL, '[TOOL_CALLS]weather[CALL_ID]a1[ARGS]{"a": 1}', "", [("weather", {"a": 1})]),
        (MISTRAL, f"<tool_call>{ARGUED}</tool_call>", "", [WEATHER]),
    ],
)
def test_calls_are_told_from_text(
    form: str, text: str, shown: str | None, calls: list[tuple[str, Any]], size: int
) -> None:
    said, found = read(form, text, size)
    assert said == (text if shown is None else shown)
    assert [(one["name"], json.loads(one["arguments"])) for one in found] == calls


@pytest.mark.parametrize(
    ("form", "text"), [(LLAMA, LLAMA_CALL), (MISTRAL, f"[TOOL_CALLS][{ARGUED}]")]
)
def test_a_call_that_is_cut_has_its_arguments_so_far(form: str, text: str) -> None:
    whole = f"{text[:-1]}, " if form == MISTRAL else f"{text}; "
    cut = whole + text.removeprefix("[TOOL_CALLS][")[:45]
    said, found = read(form, cut, 4, cut=True)
    assert (said, [one["name"] for one in found]) == ("", ["weather"] * 2)
    assert json.loads(found[0]["arguments"]) == TURIN
    assert found[1]["arguments"].startswith('{"city"')


def test_a_named_call_that_is_cut_has_its_arguments_so_far() -> None:
    said, [call] = read(MISTRAL, '[TOOL_CALLS]weather[ARGS]{"city": "Tu', 3, cut=True)
    assert (said, call) == ("", {"name": "weather", "arguments": '{"city": "Tu'})


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (LLAMA, '{"name": "Ada Lovelace", "bo'),
        (LLAMA, '{"name": "Ada", "parameters": {"bo'),
        (LLAMA, '{"name": "weather", "born": 18'),
        (LLAMA, '{"name": "weather", "born": 18}'),
        (MISTRAL, "[TOOL_CALLS]weather is [1, 2"),
    ],
)
def test_an_answer_that_is_cut_stays_text(form: str, text: str) -> None:
    assert read(form, text, 3, cut=True) == (text, [])


@pytest.mark.parametrize("form", [LLAMA, MISTRAL])
def test_any_number_of_blanks_is_read_once(form: str) -> None:
    """A text of this size that is looked at again from each blank takes hours."""
    blanks = " " * 300_000
    for text in (f"[TOOL_CALLS]a{blanks}", f"<|python_tag|>a{blanks}", f"{blanks}a{blanks}{{"):
        for cut in (True, False):
            said, calls = read(form, text, 10, cut=cut)
            assert (said, calls) == (text.strip(), [])


def output(new: NewSequence, tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    live = LiveSequence(new, tokenizer, frozenset([0]))
    return "".join(map(live.append, tokens)) + live.rest_of_text()


@pytest.mark.parametrize("keeps", [True, False])
def test_a_sequence_has_the_special_tokens_of_its_calls(tmp_path: Path, keeps: bool) -> None:
    tiny_llama.save_tokenizer(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens(["[TOOL_CALLS]", "[ARGS]"])
    ids = tokenizer.encode('So: [TOOL_CALLS]weather[ARGS]{"a": 1}').ids
    made = Prompt([65], 1, GenerationRequest(), call_format=MISTRAL)
    sampling = Sampling(skip_special_tokens=not keeps)
    wanted = 'So: <tool_call>\n{"name": "weather", "arguments": {"a": 1}}\n</tool_call>'
    assert output(NewSequence("a", made, sampling), tokenizer, [*ids, 0]).startswith(wanted)
    for at in range(len(ids)):  # what was delivered before another worker took it comes no more
        begun = LiveSequence(NewSequence("a", made, sampling), tokenizer, frozenset([0]))
        delivered = "".join(map(begun.append, ids[:at]))
        resumed = NewSequence("a", made, sampling, tuple(ids[:at]), text=delivered)
        rest = output(resumed, tokenizer, [*ids[at:], 0])
        assert (delivered + rest).startswith(wanted)


@pytest.mark.parametrize("form", [LLAMA, MISTRAL])
def test_a_call_that_was_delivered_as_written_goes_on_as_written(tmp_path: Path, form: str) -> None:
    """As by a worker of a release that held none back."""
    tiny_llama.save_tokenizer(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens(["[TOOL_CALLS]"])
    written = {LLAMA: LLAMA_CALL, MISTRAL: f"[TOOL_CALLS][{ARGUED}][TOOL_CALLS][{ARGUED}]"}[form]
    ids = tokenizer.encode(written, add_special_tokens=False).ids
    request = GenerationRequest(tool_use=ToolUse([{"function": {"name": "weather"}}]))
    plain, made = Prompt([65], 1, request), Prompt([65], 1, request, call_format=form)
    whole = output(NewSequence("a", plain, Sampling()), tokenizer, [*ids, 0])
    for at in range(4, len(ids)):
        old = LiveSequence(NewSequence("a", plain, Sampling()), tokenizer, frozenset([0]))
        delivered = "".join(map(old.append, ids[:at]))
        resumed = NewSequence("a", made, Sampling(), tuple(ids[:at]), text=delivered)
        assert delivered + output(resumed, tokenizer, [*ids[at:], 0]) == whole


def test_text_that_begins_no_call_comes_at_once() -> None:
    calls = CallText(LLAMA, TOOLS)
    assert [calls.add(part) for part in ("Hel", "lo {", '"name": 1}')] == [
        "Hel", "lo {", '"name": 1}',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{% if tools %}<tool_call>{% endif %}", HERMES),
        ("{{ '[TOOL_CALLS]' }}{{ tools }}", MISTRAL),
        ('{"name": function name, "parameters": {}} {{ "ipython" }} {{ tools }}', LLAMA),
        ("{{ tools }}", HERMES),
    ],
)
def test_the_format_is_that_of_the_chat_template(template: str, form: str) -> None:
    assert format_of(template) == form
