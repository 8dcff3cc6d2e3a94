"""Keepers write the figures of each minute, once."""

from collections.abc import Iterator

import pytest
import redis
from sqlalchemy import Engine, text

from jobs.settings import Settings
from jobs.store import db
from jobs.telemetry.reports.reports import KEY, Report
from jobs.telemetry.reports.window import WindowDelta
from workers.keeper.monitoring.history_writer import HistoryWriter


@pytest.fixture
def keepers(settings: Settings, redis_client: "redis.Redis") -> Iterator[list[HistoryWriter]]:
    """Two keepers, in the role that they have."""
    role = db.connect(settings.database_url, pool_size=2, role=db.WORKER)
    yield [HistoryWriter(redis_client, role) for _ in range(2)]
    role.dispose()


def written(database: Engine) -> list[tuple[str, int, float]]:
    """What is known of the first minute: another may have begun."""
    first = "at = (SELECT min(at) FROM figures)"
    query = text(f"SELECT subject, step, calls_s FROM figures WHERE {first} ORDER BY subject")
    with database.connect() as tx:
        return [(row.subject, row.step, row.calls_s) for row in tx.execute(query)]


def report(client: "redis.Redis", calls: float) -> None:
    labels = (("class", "interactive"), ("model", "m@1"), ("outcome", "succeeded"))
    delta = WindowDelta(60.0, {("millrace_calls_total", labels): calls}, {})
    one = Report("api_1", "api", float(client.time()[0]), delta, {})
    client.hset(KEY, "api_1", one.pack())


def test_a_minute_is_written_by_the_first_that_looks(
    database: Engine, keepers: list[HistoryWriter], redis_client: "redis.Redis"
) -> None:
    for keeper in keepers:
        keeper.run_once()
    assert written(database) == []  # nobody reports
    for calls, keeper in zip((60.0, 600.0), keepers, strict=True):
        report(redis_client, calls)
        keeper.run_once()
    assert written(database) == [("everything", 60, 1.0), ("model:m@1", 60, 1.0)]


def test_what_is_written_outlives_redis(
    database: Engine, keepers: list[HistoryWriter], redis_client: "redis.Redis"
) -> None:
    report(redis_client, 60.0)
    keepers[0].run_once()
    redis_client.flushdb()
    keepers[1].run_once()
    assert [row[0] for row in written(database)] == ["everything", "model:m@1"]
