"""Connections of the pool: those that died while they were idle are replaced."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine

from jobs import clock
from jobs.settings import Settings
from jobs.store import db
from tests.support.stores.transactions import scalar


@pytest.fixture
def pool(settings: Settings) -> Iterator[Engine]:
    made = db.connect(settings.database_url, pool_size=2)
    yield made
    made.dispose()


def backend(pool: Engine) -> int:
    return int(scalar(pool, "SELECT pg_backend_pid()") or 0)


def end(database: Engine, pid: int) -> None:
    assert scalar(database, "SELECT pg_terminate_backend(:pid, 60000)", {"pid": pid})


def test_a_connection_that_died_while_it_was_idle_is_replaced(
    pool: Engine, database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = clock.monotonic()
    first = backend(pool)
    end(database, first)
    monkeypatch.setattr(clock, "monotonic", lambda: now_s + 60)
    assert backend(pool) != first


def test_a_connection_that_died_a_moment_after_its_use_is_replaced(
    pool: Engine, database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    first = backend(pool)
    end(database, first)
    assert backend(pool) != first


def test_a_connection_that_was_used_a_moment_ago_is_not_pinged(
    pool: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, pings = [clock.monotonic()], list[object]()
    ping = pool.dialect.do_ping

    def counted(connection: Any) -> bool:
        pings.append(connection)
        return ping(connection)

    monkeypatch.setattr(pool.dialect, "do_ping", counted)
    monkeypatch.setattr(clock, "monotonic", lambda: now_s[0])
    first = backend(pool)
    assert backend(pool) == first
    assert pings == []
    now_s[0] += 60
    assert backend(pool) == first
    assert len(pings) == 1
