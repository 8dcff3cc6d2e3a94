"""Helpers of tests: a loop over cases, and the cores that a run may use."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support import cores
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


QUOTAS = [
    ({}, None),
    ({"cpu.max": "max 100000"}, None),
    ({"cpu.max": "50000 100000"}, 0.5),
    ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None),
    ({"cpu.cfs_quota_us": "25000", "cpu.cfs_period_us": "100000"}, 0.25),
]


def test_a_quota_bounds_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_ROOT", tmp_path)
    for (files, usable), case in each(QUOTAS):
        with case:
            for folder in (tmp_path, tmp_path / "cpu", tmp_path / "cpu,cpuacct"):
                folder.mkdir(exist_ok=True)
                for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"):
                    (folder / name).unlink(missing_ok=True)
                for name, text in files.items():
                    (folder / name).write_text(text)
            assert cores.usable_cores() == (usable or len(os.sched_getaffinity(0)))
