"""Idempotency-Key as clients write it: a String of Structured Fields, or bare."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.errors import Malformed
from jobs.intake.idempotency_key import MAX_LENGTH, PATTERN, parse_key
from tests.support.cases import each

VECTORS = Path(__file__).parents[5] / "shared/spec/structured-field-string-vectors.json"


def test_a_key_is_read_quoted_or_bare() -> None:
    cases = [
        ('"foo bar"', "foo bar"),
        ('""', ""),
        ('"   "', "   "),
        (r'"foo \"bar\" \\ baz"', r'foo "bar" \ baz'),
        (' "a" ', "a"),
        ('"a";b;c=1;d="x\\"";e=tok;f=:YQ==:;g=?1;h=-1.5; i=@12', "a"),
        ('"a, b; c"', "a, b; c"),
        ("8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
        ("job:2026/11/21#7", "job:2026/11/21#7"),
        ("YWJj+/==", "YWJj+/=="),
        ("x" * MAX_LENGTH, "x" * MAX_LENGTH),
    ]
    for (field, key), case in each(cases):
        with case:
            assert parse_key(field) == key


def test_what_is_no_key_is_refused_with_the_way_to_write_one_and_the_limit() -> None:
    cases = [
        "", " ", '"', '"a', 'a"', '"a" "b"', '"a", "b"', "a b", "a,b", "a;b", "a\\b", "'a'",
        '"a\\"', '"\\a"', '"ü"', "ü", '"a\tb"', '"a\n"', "a\x7f", '"a";', '"a";B', '"a";b=',
        '"a";b=é',
    ]  # fmt: skip
    for field, case in each(cases):
        with case, pytest.raises(Malformed, match="in double quotes"):
            parse_key(field)
    for key in ("x" * (MAX_LENGTH + 1), f'"{" " * (MAX_LENGTH + 1)}"'):
        with pytest.raises(Malformed, match=f"{MAX_LENGTH + 1} characters.*at most {MAX_LENGTH}"):
            parse_key(key)


@pytest.mark.skipif(not VECTORS.exists(), reason="the vectors in ../shared/spec are not here")
def test_the_vectors_of_structured_fields_hold() -> None:
    vectors: list[dict[str, Any]] = json.loads(VECTORS.read_text())
    for vector in vectors:
        field = ", ".join(vector["raw"])  # several lines of a field are one list
        if vector.get("must_fail"):
            with pytest.raises(Malformed):
                parse_key(field)
        else:
            assert [parse_key(field), []] == vector["expected"], vector["name"]


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=MAX_LENGTH))
def test_any_printable_ascii_can_be_a_key(key: str) -> None:
    escaped = re.sub(r'(["\\])', r"\\\1", key)
    assert parse_key(f'"{escaped}"') == key


@given(st.text(max_size=10) | st.from_regex(PATTERN, fullmatch=True))
@example('"a" ')
def test_what_the_documented_pattern_says_is_what_is_read(field: str) -> None:
    try:
        parse_key(field)
        read = True
    except Malformed:
        read = False
    assert read == bool(re.fullmatch(PATTERN, field.strip(" ")))
