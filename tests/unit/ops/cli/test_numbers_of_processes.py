"""Numbers of processes that can't be meant are refused, before anything starts."""

import os

import pytest

from tests.support.cases import each
from tests.support.command_line import run_millrace

STOPPED_LATER = {"MILLRACE_PORT": "none"}
"""Ends a command that takes its options, before it starts anything."""


def test_a_number_that_cant_be_meant_is_refused_with_what_to_do() -> None:
    wrong = {
        "up --workers -1": "-1 is not in the range x>=0",
        "up --max-workers -1": "-1 is not in the range x>=0",
        "up --prepare-workers -1": "-1 is not in the range x>=0",
        "up --apis 0": "0 is not in the range x>=1",
        "up --max-apis -1": "-1 is not in the range x>=0",
        "up --workers 3 --max-workers 2": "--max-workers 2 is below --workers 3",
        "up --apis 3 --max-apis 2": "--max-apis 2 is below --apis 3",
        "prepare --workers 0": "0 is not in the range x>=1",
    }
    for command, case in each(wrong):
        with case:
            done = run_millrace(*command.split(), status=2, **STOPPED_LATER)
            assert wrong[command] in " ".join(done.output.split())


def test_bounds_from_what_is_started_on_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))
    for options, case in each(
        ["", "--apis 2 --max-apis 2", "--workers 0 --max-workers 1", "--max-apis 1"]
    ):
        with case:
            done = run_millrace("up", *options.split(), status=1, **STOPPED_LATER)
            assert "MILLRACE_PORT" in done.output
