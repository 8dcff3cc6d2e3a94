"""Time that passes when a test says so."""

import pytest

from jobs import clock


class Clock:
    now_s = 0.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The api's monotonic clock."""
    made = Clock()
    monkeypatch.setattr(clock, "monotonic", lambda: made.now_s)
    return made
