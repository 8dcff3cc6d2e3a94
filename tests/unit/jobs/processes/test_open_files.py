"""The limit of open files."""

import logging
import resource
from collections.abc import Callable

import pytest

from jobs.processes import open_files

Limits = tuple[int, int]
SetLimits = Callable[[int, int], list[Limits]]


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> SetLimits:
    """Sets what the system says; returns what is asked of it."""

    def set_limits(soft: int, hard: int) -> list[Limits]:
        asked: list[Limits] = []
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
        monkeypatch.setattr(resource, "setrlimit", lambda _, limit: asked.append(limit))
        return asked

    return set_limits


def test_it_is_raised_to_what_the_system_allows(
    limits: SetLimits, caplog: pytest.LogCaptureFixture
) -> None:
    asked = limits(1024, 524_288)
    assert open_files.raise_limit() == 524_288
    assert asked == [(524_288, 524_288)]
    assert not caplog.records


def test_without_a_hard_limit_it_is_raised_to_what_is_needed(limits: SetLimits) -> None:
    asked = limits(1024, resource.RLIM_INFINITY)
    assert open_files.raise_limit() == open_files.WANTED
    assert asked == [(open_files.WANTED, resource.RLIM_INFINITY)]


def test_one_that_is_high_is_left_alone(limits: SetLimits) -> None:
    asked = limits(100_000, 100_000)
    assert open_files.raise_limit() == 100_000
    assert not asked


def test_one_that_is_too_low_is_told(limits: SetLimits, caplog: pytest.LogCaptureFixture) -> None:
    limits(1024, 4096)
    with caplog.at_level(logging.WARNING):
        assert open_files.raise_limit() == 4096
    [told] = caplog.messages
    assert "may open 4096 files" in told
    assert "hard limit to 16384" in told
