"""Pauses that take no time."""

import asyncio

import pytest

from millrace import clock


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that a client makes, s, none of which takes any time."""
    found: list[float] = []

    async def async_sleep(seconds: float) -> None:
        found.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(clock, "sleep", found.append)
    monkeypatch.setattr(clock, "async_sleep", async_sleep)
    return found
