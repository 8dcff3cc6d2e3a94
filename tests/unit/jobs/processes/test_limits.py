"""Limits: open files of a process, and slots that tenants share."""

import logging
import resource

import pytest

from jobs.processes import open_files
from jobs.processes.tenant_slots import TenantSlots
from tests.support.cases import each


def test_the_limit_of_open_files_is_raised_without_a_word_unless_it_is_too_low(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def asked_for(soft: int, hard: int) -> tuple[int, list[tuple[int, int]]]:
        asked: list[tuple[int, int]] = []
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
        monkeypatch.setattr(resource, "setrlimit", lambda _, limit: asked.append(limit))
        return open_files.raise_limit(), asked

    endless, wanted = resource.RLIM_INFINITY, open_files.WANTED
    with caplog.at_level(logging.WARNING):
        assert asked_for(1024, 524_288) == (524_288, [(524_288, 524_288)]), "the system's"
        assert asked_for(1024, endless) == (wanted, [(wanted, endless)]), "what is needed"
        assert asked_for(100_000, 100_000) == (100_000, []), "high enough"
        assert not caplog.records
        assert asked_for(1024, 4096)[0] == 4096
    [told] = caplog.messages
    assert "may open 4096 files" in told
    assert "hard limit to 16384" in told


def test_a_tenant_alone_has_half_of_the_slots() -> None:
    for (slots, most), case in each([(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)]):
        with case:
            found = TenantSlots(slots)
            for _ in range(most):
                assert found.has_room("a")
                found.take("a")
            assert found.full() == ["a"]
            assert found.has_room("b") == (slots > 1)
            found.give_back("a")
            assert found.full() == []
            assert found.used("a") == most - 1
