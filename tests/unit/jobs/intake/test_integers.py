"""Integers that 64 bits don't hold are refused where they stand; all others stay as they are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.dialects.anthropic import _parsed
from jobs.dialects.openai_lines import LineError, request_of
from jobs.errors import Fault, Invalid, Malformed
from jobs.intake import integers
from jobs.intake.validation import parse_json
from tests.support.cases import each
from tests.support.json_values import json_values

OUT = st.integers(2**64, 10**30) | st.integers(-(10**30), -(2**63) - 1)
EDGE = st.integers(10**17, 10**21) | st.sampled_from([2**64 - 1, 2**64, 2**63, 2**63 - 1])


def faults(raw: bytes) -> tuple[Fault, ...]:
    with pytest.raises(Invalid) as refused:
        parse_json(raw)
    return refused.value.faults


def test_each_is_named_with_its_place_and_what_to_send_instead() -> None:
    cases: list[tuple[bytes, list[tuple[Any, ...]]]] = [
        (b"18446744073709551616", [()]),
        (b" -9223372036854775809\n", [()]),
        (b'{"input": {"id": 123456789012345678901234567890}}', [("input", "id")]),
        (b'{"items":[1,{"input":[0.5,-99999999999999999999]}]}', [("items", 1, "input", 1)]),
        (b'{"a":[1e3,99999999999999999999],"b":99999999999999999999}', [("a", 1), ("b",)]),
        (b'{"0":"99999999999999999999","b": 1%s }' % (b"0" * 300), [("b",)]),
        (b'["\\ud800",\t99999999999999999999]', [(1,)]),
    ]
    for (raw, places), case in each(cases):
        with case:
            assert [fault.loc for fault in faults(raw)] == places
    [fault] = faults(b'{"input": {"id": 18446744073709551616}}')
    said = "input.id is an integer that 64 bits don't hold: send it as a text"
    assert (fault.code, fault.message) == ("big_integer", said)


@given(st.lists(json_values | EDGE.map(lambda n: -n) | EDGE), st.integers(0, 30))
def test_a_text_is_refused_if_and_only_if_it_holds_one(values: list[Any], blanks: int) -> None:
    raw = b" " * blanks + json.dumps({"a": values}).encode()
    out = [
        index
        for index, value in enumerate(values)
        if type(value) is int and not integers.LEAST <= value <= integers.MOST
    ]
    if out:
        assert [fault.loc for fault in faults(raw)] == [("a", index) for index in out]
    else:
        found = parse_json(raw)["a"]
        assert found == values
        assert list(map(type, found)) == list(map(type, values))


@given(OUT, st.integers(0, 30), st.integers(0, 30))
def test_one_is_found_wherever_it_stands(number: int, before: int, after: int) -> None:
    raw = b"%b[%d%b]" % (b" " * before, number, b" " * after)
    assert [fault.loc for fault in faults(raw)] == [(0,)]
    assert [fault.loc for fault in faults(memoryview(raw))] == [(0,)]  # type: ignore[arg-type]


def test_digits_in_texts_fractions_and_exponents_are_no_integers() -> None:
    raw = (
        b'{"a": "99999999999999999999", "b": 0.00012345678901234567890'
        b', "c": 123456789012345678901.5'
        b', "d": 99999999999999999999e1, "e": " 99999999999999999999 ", "99999999999999999999": 1'
        b', "f": 1e-00000000000000000001, "g": "\\"99999999999999999999,"}'
    )
    assert parse_json(raw) == json.loads(raw)


def test_what_is_no_json_stays_malformed() -> None:
    for raw, case in each(
        [b"[99999999999999999999", b"99999999999999999999 \xff", b"1 " * 99, b"9" * 5000]
    ):
        with case, pytest.raises(Malformed, match="not valid JSON"):
            parse_json(raw)
    deep = b"[" * 1000 + b"99999999999999999999" + b"]" * 1000
    with pytest.raises(Malformed, match=r"nested so deeply.*send it as a text"):
        parse_json(deep)


def test_many_that_fit_hide_none_that_does_not() -> None:
    fit = [2**64 - 1 - n for n in range(150)] + [-(2**63) + n for n in range(150)]
    assert parse_json(json.dumps(fit).encode()) == fit
    assert [fault.loc for fault in faults(json.dumps([*fit, 2**64]).encode())] == [(300,)]


def test_many_are_bounded_as_faults_are() -> None:
    assert len(faults(b"[%b]" % b",".join([b"99999999999999999999"] * 1500))) == 1000


def test_a_line_of_a_batch_is_refused_at_its_place() -> None:
    line = b'{"custom_id": "1", "body": {"seed": 18446744073709551616}}'
    with pytest.raises(LineError) as refused:
        request_of(line)
    assert refused.value.args[0] == "big_integer"
    assert refused.value.args[2] == "body.seed"
    [fault] = _parsed(line, 7)[1]
    assert (fault.loc, fault.line) == (("body", "seed"), 7)
