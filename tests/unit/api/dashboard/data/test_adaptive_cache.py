"""A slow query is repeated seldom."""

import pytest

from api.dashboard.data.adaptive_cache import AdaptiveCache
from tests.unit.api.conftest import Clock


class Queries:
    def __init__(self, time: Clock) -> None:
        self.time, self.kept = time, AdaptiveCache[str]()

    def ask(self, question: object, takes_s: float) -> str:
        def answer() -> str:
            self.time.now_s += takes_s
            return f"at {self.time.now_s:g}"

        return self.kept.get(question, answer)


@pytest.fixture
def queries(time: Clock) -> Queries:
    return Queries(time)


def test_an_answer_is_good_for_longer_the_longer_it_took(queries: Queries) -> None:
    assert queries.ask("slow", 0.1) == "at 0.1"
    queries.time.now_s = 40.0
    assert queries.ask("slow", 0.1) == "at 0.1"
    queries.time.now_s = 60.0
    assert queries.ask("slow", 0.0) == "at 60"


def test_questions_have_their_answers_until_there_are_too_many(queries: Queries) -> None:
    assert [queries.ask(n, 1.0) for n in range(300)] == [f"at {n + 1}" for n in range(300)]
    assert queries.ask(299, 1.0) == "at 300"
    assert queries.ask(0, 1.0) == "at 301"
