"""Limits: open files of a process, and slots that tenants share."""

import logging
import resource
from collections.abc import Callable

import pytest

from jobs.processes import open_files
from jobs.processes.tenant_slots import TenantSlots

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


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (1024, 524_288, 524_288),
        (1024, resource.RLIM_INFINITY, open_files.WANTED),
        (100_000, 100_000, None),
    ],
    ids=["what the system allows", "what is needed", "high enough"],
)
def test_it_is_raised_without_a_word(
    limits: SetLimits, caplog: pytest.LogCaptureFixture, soft: int, hard: int, raised: int | None
) -> None:
    asked = limits(soft, hard)
    assert open_files.raise_limit() == (raised or soft)
    assert asked == ([(raised, hard)] if raised else [])
    assert not caplog.records


def test_one_that_is_too_low_is_told(limits: SetLimits, caplog: pytest.LogCaptureFixture) -> None:
    limits(1024, 4096)
    with caplog.at_level(logging.WARNING):
        assert open_files.raise_limit() == 4096
    [told] = caplog.messages
    assert "may open 4096 files" in told
    assert "hard limit to 16384" in told


@pytest.mark.parametrize(("slots", "most"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_a_tenant_alone_has_half_of_the_slots(slots: int, most: int) -> None:
    found = TenantSlots(slots)
    for _ in range(most):
        assert found.has_room("a")
        found.take("a")
    assert found.full() == ["a"]
    assert found.has_room("b") == (slots > 1)
    found.give_back("a")
    assert found.full() == []
    assert found.used("a") == most - 1
