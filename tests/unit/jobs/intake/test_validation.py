"""One item: its format, what is right with it, and everything that is wrong."""

import gzip
import json
from codecs import BOM_UTF8
from dataclasses import replace
from io import BytesIO
from itertools import product
from typing import Any, cast

import orjson
import pytest
from hypothesis import given

from jobs.errors import Fault, Invalid, Malformed
from jobs.intake import validation
from jobs.intake.formats import guess, read_head, text_lines
from jobs.intake.validation import Item
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Limits, Model
from tests.support.cases import each
from tests.support.json_values import json_values


def test_the_format_of_what_has_no_name_is_guessed() -> None:
    cases = [
        (b"", "jsonl"),
        (b'"a"\n"b"\n', "jsonl"),
        (b'\n{"input": 1}\n{"input": \n', "jsonl"),  # the api names the line
        (b'{"input: 1}\nx\n', "jsonl"),
        (b"1\n2\n", "jsonl"),
        (b"[1, 2]\n", "jsonl"),  # an input may be a list
        (b'[\n "a",\n "b"\n]\n', "json"),
        (b'{\n "messages": [{"role": "us', "json"),
        (b'[{"input": 1},\n {"input": 2}]', "json"),
        (b"a text\nanother\n", "text"),
        (b"1\ntwo\n", "text"),
        (b"[1] A footnote\n[2] Another\n", "text"),
        (b'"Hello," she said.\n', "text"),
        ("\xe9\n".encode("latin-1"), "text"),
    ]
    for (content, found), case in each(cases):
        with case:
            assert guess(content.splitlines(keepends=True)) == found


def test_the_head_of_a_file_is_bounded_and_each_line_of_a_text_is_an_item() -> None:
    assert read_head(BytesIO(b"a\nb\n")) == [b"a\n", b"b\n"]
    assert read_head(BytesIO(BOM_UTF8 + b"1\n2\n")) == [b"1\n", b"2\n"]
    long = BytesIO(b"x" * 300_000)
    assert sum(map(len, read_head(long, 1000))) < 70_000
    lines = [b'say "hi"\r\n', "\xe9\n".encode(), b"\n", None, b"\xff\n", b"last"]
    assert list(text_lines(lines)) == [
        b'"say \\"hi\\""', '"\xe9"'.encode(), b'""', None, b"\xff", b'"last"'
    ]  # fmt: skip


ECHO, MINILM = SAMPLES.resolve("echo"), SAMPLES.resolve("minilm")


def check(value: Any, model: Model = ECHO, strict: bool = True) -> Item | list[Fault]:
    return validation.check(value, ("items", 3), None, model, strict)


def faults(value: Any, model: Model = ECHO, strict: bool = True) -> list[tuple[Any, ...]]:
    """(last part of the place, code) of everything that is wrong."""
    found = check(value, model, strict)
    assert isinstance(found, list), found
    assert all(fault.loc[:2] == ("items", 3) for fault in found)
    return sorted((*fault.loc[2:], fault.code) for fault in found)


# -- reading JSON


def test_what_is_no_json_or_in_another_encoding_is_malformed() -> None:
    cases = [
        b"", b"{", b"nul", b"[1,]", b"'a'", b"NaN", b"[Infinity]", b"1e400",
        b'["\\ud800", -1e999]', b"[" * 5000, b'"\xff"', b'"a\nb"', b"1 2",
    ]  # fmt: skip
    for raw, case in each(cases):
        with case, pytest.raises(Malformed, match="not valid JSON"):
            validation.parse_json(raw)
    with pytest.raises(Malformed, match="not UTF-8"):
        validation.parse_json(gzip.compress(b'"a"'))
    encodings = ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-be"]
    for (encoding, text), case in each(product(encodings, ['{"a": 1}', '["\\ud800"]'])):
        with case, pytest.raises(Malformed, match="not valid JSON"):
            validation.parse_json(text.encode(encoding))


# -- checking


@given(json_values)
def test_any_json_value_is_read_as_it_was_written_and_stored_as_it_is(value: Any) -> None:
    assert validation.parse_json(json.dumps(value).encode()) == value
    item = check({"input": value})
    assert isinstance(item, Item)
    assert orjson.loads(item.input) == value


def test_a_value_is_an_item_with_a_custom_id_that_can_be_shown_or_the_input_of_one() -> None:
    assert check("text") == Item(None, b'"text"', None)
    assert check([1, None]) == Item(None, b"[1,null]", None)
    value = {"custom_id": "a-1", "input": "text", "params": {"normalize": False}}
    assert check(value, MINILM) == Item("a-1", b'"text"', b'{"normalize":false}')
    assert check({"custom_id": None, "input": None, "params": None}) == Item(None, b"null", None)
    for custom_id, case in each(["a", "ä b", "x" * 512, "\\N", "\\"]):
        with case:
            assert check({"custom_id": custom_id, "input": 1}) == Item(custom_id, b"1", None)
    for wrong, case in each(["", "x" * 513, 7, True, ["a"], "a\nb", "a\0", "\ud800"], name=repr):
        with case:
            assert faults({"custom_id": wrong, "input": 1}) == [("custom_id", "custom_id")]


def test_a_call_with_a_nul_is_refused_with_the_place_of_its_text() -> None:
    cases: list[tuple[Any, str]] = [
        ({"model": "m", "input": "a\0b"}, "input"),
        ({"messages": [{"content": "x"}, {"content": [{"text": "\0"}]}]},
         "messages[1].content[0].text"),
        ({"input": {"a\0": 1}}, "input"),
        ({"a\0": 1}, "the body"),
        ({"x" * 100: "\0"}, "x" * 64),
        ("\0", "the body"),
    ]  # fmt: skip
    for (value, place), case in each(cases):
        with case, pytest.raises(Invalid, match="holds a NUL character, U\\+0000") as caught:
            validation.parse_call(orjson.dumps(value))
        assert caught.value.detail.startswith(f"{place} holds")
    with pytest.raises(Invalid, match=r"^\? holds"):
        validation.parse_call(b'{"\\ud800": "\\u0000"}')
    letters = b'{"input": "\\\\u0000"}'
    assert validation.parse_call(letters) == {"input": "\\u0000"}
    for deep in (b"[" * 900 + b'"\\u0000"' + b"]" * 900, b'{"":' * 900 + b'"\\u0000"' + b"}" * 900):
        assert validation.parse_call(deep), "it is refused for its depth, by the checks after this"


def test_an_input_or_parameter_that_can_not_be_stored_is_refused() -> None:
    cases = [
        ("a\0b", "nul"),
        ({"input": ["a\0b"]}, "nul"),
        ({"input": {"a\0": 1}}, "nul"),
        ("\ud800", "lone_surrogate"),
        ({"input": {"\ud800": 1}}, "lone_surrogate"),
        ({"input": 2**64}, "not_storable"),
    ]
    for (value, code), case in each(cases):
        with case:
            assert [fault[-1] for fault in faults(value)] == [code]
    value = validation.parse_json(b'{"input": ["\\ud800"], "custom_id": "a"}')
    assert faults(value) == [("input", "lone_surrogate")], "it is read to name its place"
    assert isinstance(check("\\u0000"), Item), "the letters of an escape are no NUL"


def nested(levels: int, opening: str = "[", closing: str = "]") -> Any:
    return json.loads(opening * levels + "1" + closing * levels)


def test_a_value_is_nested_200_levels_at_most() -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        assert validation.storable(nested(200, opening, closing))
        assert validation.storable([nested(199, opening, closing)] * 300)
        for levels in (201, 254, 255, 300):
            with pytest.raises(ValueError, match="too_deep"):
                validation.storable(nested(levels, opening, closing))


PASSING = Model("up", "1", "http", options={"url": "http://up", "body": {"p": "$params"}})


def test_parameters_that_can_not_be_stored_are_refused() -> None:
    cases = [
        ({"a": "\ud800"}, "lone_surrogate"),
        ({"\ud800": 1}, "lone_surrogate"),
        ({"a": nested(300)}, "too_deep"),
        ({"a": "\0"}, "nul"),
        ({"a": 2**64}, "not_storable"),
    ]
    for (params, code), case in each(cases):
        with case:
            assert faults({"input": 1, "params": params}, PASSING) == [("params", code)]


def test_everything_that_is_wrong_with_an_item_is_named_whatever_its_keys() -> None:
    value = {"custom_id": 7, "input": 3, "params": [], "prio": 1, "inputs": 2}
    assert faults(value, MINILM) == [
        ("custom_id", "custom_id"),
        ("input", "type"),
        ("inputs", "unknown_key"),
        ("params", "type"),
        ("prio", "unknown_key"),
    ]
    assert faults({}) == [("input", "missing")]
    [fault] = validation.check({"input": 1, "\ud800": 2}, (), 4, ECHO, True)  # type: ignore[misc]
    sent = orjson.loads(orjson.dumps(fault.as_json()))
    assert (sent["loc"], sent["line"], sent["code"]) == (["?"], 4, "unknown_key")


def test_a_conversation_without_its_item_is_told_an_example() -> None:
    hi = [{"role": "user", "content": "Hi"}]
    values = [{"messages": hi, "max_tokens": 5}, {"prompt": "Hi", "custom_id": "a"}]
    models = [Model("m", "1", "echo_chat"), Model("m", "1", "python", task="chat")]
    for (value, model), case in each(product([*values, "Hi", {"input": "Hi"}, hi], models)):
        with case:
            [fault] = validation.check(value, (), None, model, strict=True)
            assert isinstance(fault, Fault)
            item = '{"input": {"messages": [{"role": "user", "content": "Hello"}]}}'
            assert fault.message.endswith(item)


def test_the_longest_input_is_measured_as_json_together_with_its_parameters() -> None:
    model = Model("m", "1", "echo", limits=Limits(max_item_bytes=8))
    for fits, long in (("sixfit", "seven!!"), ({"input": "sixfit"}, {"input": "seven!!"})):
        assert isinstance(check(fits, model), Item)
        assert [fault[-1] for fault in faults(long, model)] == ["too_long"]
    model = replace(MINILM, limits=Limits(max_item_bytes=30))
    params = {"normalize": False}  # 19 bytes as JSON
    fits = check({"input": "x" * 9, "params": params}, model)
    assert isinstance(fits, Item)
    assert len(fits.input) + len(fits.params or b"") == 30
    assert faults({"input": "x" * 10, "params": params}, model) == [("params", "too_long")]
    assert faults({"input": "x" * 29, "params": params}, model) == [("input", "too_long")]


def test_what_the_model_refuses_is_a_fault_only_where_the_job_is_strict() -> None:
    for value, case in each([None, 7, True, [["text"]], {"input": {"a": 1}}]):
        with case:
            assert [fault[-1] for fault in faults(value, MINILM)] == ["type"]
            assert isinstance(check(value, MINILM, strict=False), Item)
    model = Model("writer", "1", "echo_chat")
    value = {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json"}}
    [fault] = cast(list[Fault], validation.check({"input": value}, (), 3, model, True))
    assert (fault.loc, fault.code, fault.line) == (("input",), "generation", 3)
    assert "response_format.type must be one of" in fault.message
    assert not isinstance(validation.check({"input": value}, (), 3, model, False), list)


def test_parameters_are_those_of_the_model_within_the_range_that_is_told() -> None:
    cases = [
        ({"normalise": True}, "unknown_param"),
        ({"normalize": "yes"}, "type"),
        ({"normalize": None}, "type"),
        ({"\ud800": True}, "unknown_param"),
        ({"normalize": 2**70}, "type"),
        ("normalize", "type"),
        ({"truncate": True}, "type"),
        ({"truncate": 64.0}, "type"),
        ({"truncate": "64"}, "type"),
        ({"truncate": 2}, "range"),
        ({"truncate": 513}, "range"),
        ({"truncate": -(2**80)}, "range"),
    ]
    for (params, code), case in each(cases):
        with case:
            assert faults({"input": "a", "params": params}, MINILM) == [("params", code)]
    for tokens in (3, 512):
        found = check({"input": "a", "params": {"truncate": tokens}}, MINILM)
        assert found == Item(None, b'"a"', b'{"truncate":%d}' % tokens)
    [fault] = validation.check({"input": "a", "params": {"truncate": 2}}, (), None, MINILM, True)  # type: ignore[misc]
    assert fault.message == "parameter 'truncate' must be a whole number of tokens, 3 to 512"
