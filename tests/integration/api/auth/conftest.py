"""Credentials on a real database, and a clock that a test may move."""

import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

from api.auth import cache
from api.auth.authenticator import Authenticator
from jobs import clock
from jobs.settings import Settings
from tests.support.credentials import authenticating


@pytest.fixture
async def auth(settings: Settings) -> AsyncIterator[Authenticator]:
    """An Authenticator that listens for changes."""
    async with authenticating(settings) as made:
        yield made


@pytest.fixture
def only_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked up again by age: what changes is known by a notification or an end."""
    monkeypatch.setattr(cache, "SOFT_TTL_S", 1e6)
    monkeypatch.setattr(cache, "HARD_TTL_S", 1e6)


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves our clocks, of which the database's is none, ahead by so many seconds."""
    ahead_s, now = [0.0], clock.now
    monkeypatch.setattr(clock, "monotonic", lambda: time.monotonic() + ahead_s[0])
    monkeypatch.setattr(clock, "now", lambda: now() + timedelta(seconds=ahead_s[0]))

    def move(seconds: float) -> None:
        ahead_s[0] += seconds

    return move
