"""Structured output: a model of random weights writes nonsense, unless its grammar holds."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.models.inputs.tool_calls import ToolCallParser
from tests.integration.workers.engines.generators.conftest import load_tiny
from tests.support.cases import each
from tests.support.generation import tiny_llama
from tests.support.generation.generating import (
    Generated,
    new_sequence,
    prepared,
    resumed,
    run,
    sequence,
)
from tests.support.wait import eventually, gone
from workers.engines.generator import Prompt
from workers.engines.protocol import InvalidInput
from workers.engines.transformers.engine import TransformersGenerator

MOST = 230  # tokens
ASKED = {"messages": [{"role": "user", "content": "a"}]}
SHORT = {"type": "string", "maxLength": 4}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "boolean"},
    {"enum": ["red", 1, None, {"a": [1]}]},
    {"const": "grün 猫 😀"},
    {"type": "integer", "minimum": -12, "maximum": 30},
    {"type": "string", "pattern": "^[A-C]{2}-[0-9]{3}$"},
    {"type": "string", "format": "date"},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"anyOf": [{"type": "null"}, {"enum": ["x", "y"]}]},
    {
        "type": "object",
        "properties": {"name": SHORT, "unit": {"enum": ["C", "F"]}, "ok": {"type": "boolean"}},
        "required": ["name", "unit", "ok"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"point": {"$ref": "#/$defs/point"}, "more": {"type": "null"}},
        "required": ["point"],
        "additionalProperties": False,
        "$defs": {
            "point": {
                "type": "object",
                "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 9}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    },
]
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": SHORT, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
NOW: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.0, "seed": 5},
    {"temperature": 2.0, "seed": 6, "top_k": 30, "min_p": 0.01, "repetition_penalty": 1.3},
    {"temperature": 1.5, "top_p": 0.9, "presence_penalty": 1, "frequency_penalty": 0.5, "seed": 7},
    {"temperature": 1, "logit_bias": {"5": 100, "1": 100}, "seed": 8},
    {"temperature": 0, "min_tokens": 200},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny Llama whose context has room for tools."""
    made = tmp_path_factory.mktemp("tiny-llama-of-long-context")
    return tiny_llama.save(made, max_position_embeddings=1024)


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Iterator[TransformersGenerator]:
    with closing(load_tiny(folder)) as generator:
        yield generator


def tool(name: str, schema: Any, *, strict: bool = True) -> dict[str, Any]:
    function = {"name": name, "parameters": schema, "strict": strict}
    return {"type": "function", "function": function}


TOOLS = [tool("weather", WEATHER), tool("now", NOW)]


def by_schema(schema: Any, **fields: Any) -> dict[str, Any]:
    wanted = {"name": "answer", "schema": schema, "strict": True}
    return {**ASKED, "response_format": {"type": "json_schema", "json_schema": wanted}, **fields}


def write(generator: TransformersGenerator, *inputs: Any, most: int = MOST) -> list[Generated]:
    """Returns what is generated of each input, with the sampling that it names."""
    return run(generator, [sequence(generator, value, max_tokens=most) for value in inputs])


def assert_valid(done: Generated, schema: Any) -> bool:
    """Returns False for a text that max_tokens cut."""
    assert done.error is None
    if done.finish == "length":
        assert len(done.tokens) == MOST
        return False
    jsonschema.validate(json.loads(done.text), schema, jsonschema.Draft202012Validator)
    return True


def refusal(generator: TransformersGenerator, **fields: Any) -> str:
    [refused] = generator.prepare([{**ASKED, **fields}])
    assert isinstance(refused, InvalidInput), refused
    return str(refused)


@pytest.mark.parametrize("sampling", [*SAMPLINGS, *({"seed": n} for n in range(12))], ids=str)
def test_every_text_is_json_of_its_schema(
    tiny: TransformersGenerator, sampling: dict[str, Any]
) -> None:
    done = write(tiny, *(by_schema(schema, **sampling) for schema in SCHEMAS))
    whole = [assert_valid(*pair) for pair in zip(done, SCHEMAS, strict=True)]
    assert sum(whole) >= len(SCHEMAS) - 2 or sampling not in SAMPLINGS


def test_bound_and_free_sequences_share_steps(tiny: TransformersGenerator) -> None:
    free = {**ASKED, "temperature": 0}
    [alone] = write(tiny, free, most=20)
    bound = [by_schema(schema, seed=3) for schema in SCHEMAS[:5]]
    ones = [sequence(tiny, value, max_tokens=MOST) for value in bound]
    ones.insert(2, sequence(tiny, free, max_tokens=20))
    done = run(tiny, ones)
    assert done.pop(2).tokens == alone.tokens
    for pair in zip(done, SCHEMAS[:5], strict=True):
        assert_valid(*pair)


@pytest.mark.parametrize("schema", [SCHEMAS[8], SCHEMAS[4]])
@pytest.mark.parametrize("sampling", [SAMPLINGS[0], SAMPLINGS[3]], ids=str)
def test_a_sequence_resumed_at_any_token_has_the_same_rest(
    tiny: TransformersGenerator, schema: Any, sampling: dict[str, Any]
) -> None:
    one = sequence(tiny, by_schema(schema, **sampling), max_tokens=MOST)
    [whole] = run(tiny, [one])
    cuts = range(1, len(whole.tokens))
    rests = run(tiny, [resumed(one, whole.tokens[:cut]) for cut in cuts])
    for cut, rest in zip(cuts, rests, strict=True):
        assert whole.tokens[:cut] + rest.tokens == whole.tokens
        assert whole.text.endswith(rest.text)
        assert rest.finish == whole.finish
    if whole.finish == "stop":
        [rest] = run(tiny, [resumed(one, whole.tokens)])  # its form is complete
        assert (rest.tokens, rest.text, rest.finish) == ([tiny_llama.END], "", "stop")


def test_what_was_killed_is_started_again(folder: Path) -> None:
    """The process of the model, and the one that checks grammars."""
    with closing(load_tiny(folder)) as own:
        one = sequence(own, by_schema(SCHEMAS[8], seed=4), max_tokens=MOST)
        [whole] = run(own, [one])
        os.kill(own.pid, signal.SIGKILL)
        own.restart()
        [rest] = run(own, [resumed(one, whole.tokens[:7])])
        assert whole.tokens[:7] + rest.tokens == whole.tokens
        assert refusal(own, regex="(a")
        os.kill(own.checker_pid, signal.SIGKILL)
        eventually(lambda: gone(own.checker_pid))
        assert prepared(own, {**ASKED, "regex": "ab"})


def test_choices_of_one_prompt_follow_the_grammar_apart(tiny: TransformersGenerator) -> None:
    prompt = prepared(tiny, by_schema(SCHEMAS[8]))
    done = run(tiny, [new_sequence(prompt, max_tokens=MOST, seed=n) for n in range(6)])
    assert len({one.text for one in done}) > 1
    for one in done:
        assert_valid(one, SCHEMAS[8])


def test_max_tokens_and_stop_strings_end_a_form(tiny: TransformersGenerator) -> None:
    [done] = write(tiny, by_schema(SCHEMAS[8]), most=3)
    assert (done.finish, len(done.tokens)) == ("length", 3)
    [done] = write(tiny, {**ASKED, "regex": "aaaab", "stop": "aa"})
    assert (done.text, done.finish) == ("", "stop")


EXPRESSION = r"[a-f]{2,5}/(猫|\d{1,3})"
TEXTS = ["yes", "yes, indeed", 'no "never"', "vielleicht\n"]
SUM = 'start: sum\nsum: NUMBER ("+" NUMBER){1,3}\nNUMBER: /[0-9]{1,2}/'


def is_object(text: str) -> bool:
    return isinstance(json.loads(text), dict)


def test_other_forms_are_followed(tiny: TransformersGenerator) -> None:
    forms: list[tuple[dict[str, Any], Callable[[str], object]]] = [
        ({**ASKED, "response_format": {"type": "json_object"}}, is_object),
        ({**ASKED, "regex": EXPRESSION}, partial(re.fullmatch, EXPRESSION)),
        ({**ASKED, "structured_outputs": {"choice": TEXTS}}, TEXTS.__contains__),
        ({"prompt": "add", "grammar": SUM}, partial(re.fullmatch, r"\d{1,2}(\+\d{1,2}){1,3}")),
    ]
    for (asked, matches), case in each(forms, name=str):
        with case:
            for one in write(tiny, *({**asked, "seed": seed} for seed in range(8))):
                if "response_format" in asked and one.finish == "length":
                    assert one.text.startswith("{")
                else:
                    assert (one.finish, bool(matches(one.text))) == ("stop", True), one.text


def test_logprobs_are_those_of_the_model_alone(tiny: TransformersGenerator) -> None:
    [done] = write(tiny, {**ASKED, "regex": "[xyz]{3}", "logprobs": True, "top_logprobs": 2})
    assert len(done.logprobs) == len(done.tokens)
    assert any(one.logprob < one.top[0].logprob for one in done.logprobs)


def assert_calls(text: str) -> list[str]:
    """Returns the names that a text calls, which has nothing else, all with valid arguments."""
    parser = ToolCallParser()
    parts = [parser.feed(text), parser.finish()]
    assert not "".join(part.text for part in parts)
    calls = [call["function"] for part in parts for call in part.calls]
    for call in calls:
        schema = WEATHER if call["name"] == "weather" else NOW
        jsonschema.validate(json.loads(call["arguments"]), schema)
    return [call["name"] for call in calls]


def test_calls_are_written_with_valid_arguments_as_many_as_may_be(
    tiny: TransformersGenerator,
) -> None:
    def called(**asked: Any) -> list[list[str]]:
        inputs = ({**ASKED, "tools": TOOLS, **asked, "seed": seed} for seed in range(8))
        done = write(tiny, *inputs)
        return [assert_calls(one.text) for one in done if one.finish == "stop"]

    found = called(tool_choice="required")
    assert found
    assert all(found)
    found = called(tool_choice="required", parallel_tool_calls=False)
    assert {len(names) for names in found} == {1}
    named = {"type": "function", "function": {"name": "weather"}}
    assert called(tool_choice=named) == [["weather"]] * 8


def test_a_model_that_may_call_calls_strictly(tiny: TransformersGenerator) -> None:
    """The first token of the tag decides; it is given as what was emitted before."""
    one = sequence(tiny, {**ASKED, "tools": TOOLS, "seed": 1}, max_tokens=MOST)
    emitted = prepared(tiny, "<tool_call>").tokens
    for seed in range(6):
        again = resumed(new_sequence(one.prompt, max_tokens=MOST, seed=seed), list(emitted))
        [rest] = run(tiny, [again])
        if rest.finish == "stop":
            assert assert_calls("<tool_call>" + rest.text)


def test_an_answer_in_place_of_a_call_has_its_schema(tiny: TransformersGenerator) -> None:
    schema = SCHEMAS[8]
    done = write(tiny, *(by_schema(schema, tools=TOOLS, seed=seed) for seed in range(10)))
    for one in done:
        if one.finish == "stop" and one.text.startswith("<"):
            assert assert_calls(one.text)
        else:
            assert_valid(one, schema)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"regex": "(a"}, "regex can't be compiled: .*unclosed group"),
        ({"regex": "(?=a)a"}, "regex can't be compiled: .*look-ahead"),
        ({"grammar": "begin: x"}, "grammar can't be compiled"),
        ({"response_format": {"type": "json_schema", "json_schema": {
            "name": "a", "strict": True, "schema": {"not": {}}}}},
         r"response_format\.json_schema\.schema can't be compiled: .*not"),
        ({"tools": [tool("f", {"type": "objekt"})]}, "tools can't be compiled: .*objekt"),
    ],
)  # fmt: skip
def test_what_does_not_compile_is_refused_with_its_field(
    tiny: TransformersGenerator, fields: dict[str, Any], said: str
) -> None:
    assert re.match(said, refusal(tiny, **fields))


def test_keywords_that_are_not_enforced_are_ignored_where_a_schema_is_not_strict(
    tiny: TransformersGenerator,
) -> None:
    schema = {"type": "boolean", "not": {"const": 5}, "format": "invented"}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    [done] = write(tiny, {**ASKED, "response_format": wanted})
    assert done.text in ("true", "false")


def _optional(count: int) -> dict[str, Any]:
    names = (f"p{n}" for n in range(count))
    return {"type": "object", "properties": {name: {} for name in names}}


def _forest(depth: int) -> dict[str, Any]:
    both = {
        f"d{n}": {"properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}}
        for n in range(depth)
    }
    return {"$defs": {**both, f"d{depth}": {"type": "null"}}, "$ref": "#/$defs/d0"}


BOMBS: dict[str, dict[str, Any]] = {
    "properties": by_schema(_optional(4500)),
    "references": by_schema(_forest(60)),
    "alternatives": by_schema({"allOf": [{"anyOf": [
        {"properties": {f"p{n}": {"const": value}}, "required": [f"p{n}"]} for value in range(4)
    ]} for n in range(14)]}),
    "repeated": {"regex": "(.{1,1000}){1,1000}x"},
    "automaton": {"regex": "(a|b)*a(a|b){900}c"},
    "nested": {"regex": "(" * 20_000 + "a" + ")" * 20_000},
    "terminals": {"grammar": "start: T0\n" + "\n".join(
        f"T{n}: T{n + 1} T{n + 1}" for n in range(60)) + '\nT60: "a"'},
    "rules": {"grammar": "start: r0\n" + "\n".join(
        f"r{n}: r{n + 1} r{n + 1}" for n in range(60)) + '\nr60: "a"?'},
    "negations": {"grammar": "start: T\nT: " + " & ".join(
        f"~/(?s:.*)a.{{{n}}}b(?s:.*)/" for n in range(1, 60))},
    "brackets": {"grammar": "start: " + "(" * 30_000 + '"a"' + ")" * 30_000},
    "text": by_schema({"const": "x" * 60_000}),
    "lengths": by_schema({"type": "string", "minLength": 10**6, "maxLength": 10**7}),
    "many items": by_schema({"type": "array", "items": {}, "minItems": 10**6}),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_or_fails_alone(tiny: TransformersGenerator, name: str) -> None:
    """Whatever becomes of it, the process of the model goes on beside it."""
    pid = tiny.pid
    [found] = tiny.prepare([{**ASKED, **BOMBS[name]}])
    other = sequence(tiny, by_schema(SCHEMAS[8], seed=1), max_tokens=MOST)
    if isinstance(found, Prompt):
        [bomb, done] = run(tiny, [new_sequence(found, max_tokens=12), other])
        assert bomb.finish == "length" or bomb.finish == "stop" or bomb.error
    else:
        assert "can't be compiled" in str(found)
        [done] = run(tiny, [other])
    assert_valid(done, SCHEMAS[8])
    assert tiny.pid == pid


NAMES = st.sampled_from(["a", "b", "name", "x-y", "über"])
LEAVES = st.one_of(
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, SHORT]),
    st.lists(st.integers(-99, 99), min_size=1, max_size=3).map(lambda found: {"enum": found}),
    st.integers(-5, 5).map(lambda least: {"type": "integer", "minimum": least, "maximum": 40}),
)


def _object(properties: dict[str, Any], required: set[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(required & properties.keys()),
        "additionalProperties": False,
    }


GENERATED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(_object, st.dictionaries(NAMES, inner, max_size=3), st.sets(NAMES)),
        inner.map(lambda items: {"type": "array", "items": items, "maxItems": 2}),
        st.lists(inner, min_size=1, max_size=2).map(lambda some: {"anyOf": some}),
    ),
    max_leaves=4,
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(schema=GENERATED, seed=st.integers(0, 1000))
def test_every_schema_is_followed(tiny: TransformersGenerator, schema: Any, seed: int) -> None:
    for done in write(tiny, *(by_schema(schema, seed=seed + n) for n in range(3))):
        assert_valid(done, schema)
