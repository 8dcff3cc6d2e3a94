"""A loop over cases fails with the names of all that failed."""

import re
from collections.abc import Callable, Sequence

import pytest

from tests.support.cases import each


def loop(cases: Sequence[str], check: Callable[[str], object]) -> None:
    for name, case in each(cases, name="case {}".format):
        with case:
            check(name)


def test_it_goes_on_and_names_every_failure_with_message_and_place() -> None:
    tried: list[str] = []

    def check(name: str) -> None:
        tried.append(name)
        assert name != "b", "it is b"
        with pytest.raises(IndexError):
            "abc"[3 if name != "c" else 0]

    with pytest.raises(AssertionError) as failed:
        loop("abcd", check)
    said = str(failed.value)
    assert tried == list("abcd")
    assert said.startswith("2 of 4 cases failed:\ncase b: test_cases.py:")
    assert re.findall("^case (.).*(it is b|IndexError)", said, re.MULTILINE) == [
        ("b", "it is b"), ("c", "IndexError"),
    ]  # fmt: skip


def test_without_a_case_it_fails_and_a_skip_ends_it() -> None:
    with pytest.raises(AssertionError, match="no cases"):
        loop([], print)
    with pytest.raises(pytest.skip.Exception):
        loop("ab", pytest.skip)
