"""Retries while something is away, on a clock of the test's own."""

import threading

import pytest

from jobs import clock
from workers.items.retry import retry_while_away


class Away(Exception):
    """The thing can't be reached."""


class Source:
    """Fails so many times, and counts the calls."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls, self.warned = failures, 0, list[str]()

    def read(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise Away(f"call {self.calls}")
        return "read"

    def warn(self, error: Exception) -> None:
        self.warned.append(str(error))


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses of the test's thread, on its own clock; other threads of the process sleep."""
    pauses: list[float] = []
    test, sleep, monotonic = threading.get_ident(), clock.sleep, clock.monotonic

    def is_test() -> bool:
        return threading.get_ident() == test

    monkeypatch.setattr(clock, "sleep", lambda s: pauses.append(s) if is_test() else sleep(s))
    monkeypatch.setattr(clock, "monotonic", lambda: sum(pauses) if is_test() else monotonic())
    return pauses


def test_it_tries_again_with_backoff_until_it_succeeds(slept: list[float]) -> None:
    source = Source(failures=7)
    assert retry_while_away(source.read, Away, 60.0, source.warn) == "read"
    assert slept == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert source.warned == [f"call {n}" for n in range(1, 8)]


def test_it_gives_up_after_its_time(slept: list[float]) -> None:
    source = Source(failures=1000)
    assert retry_while_away(source.read, Away, 3.0, source.warn) is None
    assert 3.0 < sum(slept) < 5.2


def test_it_ends_once_it_is_stopped(slept: list[float]) -> None:
    source = Source(failures=1000)
    stopped = iter([False, True])
    assert retry_while_away(source.read, Away, 60.0, source.warn, lambda: next(stopped)) is None
    assert source.calls == 2


def test_other_errors_are_raised(slept: list[float]) -> None:
    source = Source(failures=1)
    with pytest.raises(Away):
        retry_while_away(source.read, KeyError, 60.0, source.warn)
