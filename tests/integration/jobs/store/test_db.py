"""Connections of the pool: those that died while they were idle are replaced."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine

from jobs import clock
from jobs.settings import Settings
from tests.support.stores.transactions import connected, scalar


@pytest.fixture
def pool(settings: Settings, now_s: list[float]) -> Iterator[Engine]:
    with connected(settings.database_url) as made:
        yield made


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the pool, which a test moves on."""
    now = [clock.monotonic()]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    return now


def backend(pool: Engine) -> int:
    return int(scalar(pool, "SELECT pg_backend_pid()") or 0)


@pytest.mark.parametrize("idle_s", [0, 60])
def test_a_connection_that_died_after_its_use_is_replaced(
    pool: Engine, database: Engine, now_s: list[float], idle_s: float
) -> None:
    first = backend(pool)
    assert scalar(database, "SELECT pg_terminate_backend(:pid, 60000)", {"pid": first})
    now_s[0] += idle_s
    assert backend(pool) != first


def test_a_connection_that_was_used_a_moment_ago_is_not_pinged(
    pool: Engine, now_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    pings, ping = list[object](), pool.dialect.do_ping

    def counted(connection: Any) -> bool:
        pings.append(connection)
        return ping(connection)

    monkeypatch.setattr(pool.dialect, "do_ping", counted)
    first = backend(pool)
    assert backend(pool) == first
    assert pings == []
    now_s[0] += 60
    assert backend(pool) == first
    assert len(pings) == 1
