"""Time as tests of workers set it."""

import pytest

from jobs import clock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands at the number in this list."""
    at_s = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: at_s[0])
    return at_s
