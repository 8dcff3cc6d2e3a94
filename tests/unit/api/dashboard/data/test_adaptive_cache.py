"""A slow query is repeated seldom."""

import pytest

from api.dashboard.data.adaptive_cache import AdaptiveCache
from jobs import clock


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)

    def takes(self, seconds: float) -> str:
        self.now += seconds
        return f"at {self.now:g}"


def test_an_answer_is_good_for_longer_the_longer_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    time, kept = Clock(monkeypatch), AdaptiveCache[str]()
    assert kept.get("slow", lambda: time.takes(0.1)) == "at 0.1"
    time.now = 40.0
    assert kept.get("slow", lambda: time.takes(0.1)) == "at 0.1"
    time.now = 60.0
    assert kept.get("slow", lambda: time.takes(0.0)) == "at 60"


def test_each_question_has_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    time, kept = Clock(monkeypatch), AdaptiveCache[str]()
    assert kept.get("one", lambda: time.takes(1.0)) == "at 1"
    assert kept.get("other", lambda: time.takes(1.0)) == "at 2"


def test_of_many_questions_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    time, kept = Clock(monkeypatch), AdaptiveCache[str]()
    for n in range(300):
        kept.get(n, lambda: time.takes(1.0))
    assert kept.get(0, lambda: "asked again") == "asked again"
    assert kept.get(299, lambda: "asked again") != "asked again"
