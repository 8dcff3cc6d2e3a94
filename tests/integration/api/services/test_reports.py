"""Processes tell of their last minute through Redis."""

import asyncio
import time

import redis

from api.gateway.redis_pipeline import RedisPipeline
from api.services.reports import Reports
from jobs.settings import Settings
from jobs.telemetry.metrics import record
from jobs.telemetry.reports import reader
from jobs.telemetry.reports.reporter import Reporter
from jobs.telemetry.reports.reports import KEY, Report, ReportSet
from jobs.telemetry.reports.window import WindowDelta
from tests.support.wait import PATIENCE_S, eventually, eventually_async

NOTHING = WindowDelta(1.0, {}, {})


def test_a_process_reports_until_it_stops(redis_client: "redis.Redis") -> None:
    reporter = Reporter(redis_client, "7", "worker", lambda: {"pool": "here"})
    record.nudged("here", 3)
    reporter.start()
    [report] = eventually(lambda: reader.read(redis_client).reports)
    assert (report.name, report.kind, report.details) == ("7", "worker", {"pool": "here"})
    assert abs(report.at - time.time()) < PATIENCE_S
    assert reader.read(redis_client).increase("millrace_nudges_total", pool="here") == 3
    reporter.stop()
    assert reader.read(redis_client).reports == []


def test_reports_of_the_dead_are_removed(redis_client: "redis.Redis") -> None:
    for name, ago_s in (("old", 61), ("young", 1)):
        report = Report(name, "worker", time.time() - ago_s, NOTHING, {})
        redis_client.hset(KEY, name, report.pack())
    redis_client.hset(KEY, "garbage", b"{}")
    assert reader.remove_stale(redis_client) == 2
    assert redis_client.hkeys(KEY) == [b"young"]


def test_without_redis_nobody_is_heard_of() -> None:
    nowhere = "redis://127.0.0.1:1"
    assert reader.read(redis.Redis.from_url(nowhere)).reports == []

    async def read() -> tuple[ReportSet, float]:
        reports = Reports(RedisPipeline(nowhere, 1.0), "api_1", {}, on=True)
        try:
            return await reports.read(), reports.unanswered_s
        finally:
            await reports.stop()

    found, unanswered_s = asyncio.run(read())
    assert found.reports == []
    assert unanswered_s >= 1


def test_an_api_writes_reads_and_keeps_a_reading_for_a_second(
    settings: Settings, redis_client: "redis.Redis"
) -> None:
    async def scenario() -> None:
        pipe = RedisPipeline(settings.redis_url, PATIENCE_S)
        reports = Reports(pipe, "api_1", {"pid": 5}, on=True)
        reports.start()

        async def kept() -> ReportSet | None:
            found = await reports.read()
            return found if found.reports and await reports.read() is found else None

        found = await eventually_async(kept)
        assert found
        assert found.reports[0].details == {"pid": 5}
        assert reports.unanswered_s == 0
        await reports.stop()

    asyncio.run(scenario())
    assert not redis_client.exists(KEY)
