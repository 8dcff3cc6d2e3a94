"""What Redis keeps for the pages of an operator: last lines of logs, half an hour of figures."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
import redis
from redis import Redis

from jobs.telemetry import log_ring
from jobs.telemetry.log_ring import LogRing, log_key, parse_lines
from jobs.telemetry.reports import history
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import WindowDelta

Kept = Callable[[], list[dict[str, Any]]]
_log = logging.getLogger("tests.ring")


@pytest.fixture
def ring(redis_client: Redis) -> Iterator[LogRing]:
    """One that hasn't a thread: the test writes."""
    made = LogRing(redis_client, 7, 100)
    _log.setLevel(logging.INFO)
    _log.addHandler(made)
    yield made
    _log.removeHandler(made)


@pytest.fixture
def kept(redis_client: Redis) -> Kept:
    """Lines of the log that Redis has."""

    def read() -> list[dict[str, Any]]:
        found: Any = redis_client.xrange(log_key(7))
        return parse_lines((id, [part for it in row.items() for part in it]) for id, row in found)

    return read


def test_lines_are_as_on_standard_error_and_without_payloads(ring: LogRing, kept: Kept) -> None:
    _log.warning(
        "it went wrong\nDETAIL: Key (x)=(a quoted row)", extra={"job_id": "job_1", "body": "x"}
    )
    quoting = "why\nCONTEXT: COPY items, line 1: a quoted row"
    try:
        raise ValueError(quoting)
    except ValueError:
        _log.exception("failed")
    ring.write()
    first, second = kept()
    named = first["level"], first["message"], first["job_id"]
    assert named == ("warning", "it went wrong", "job_1")
    assert "ValueError: why" in second["exception"]
    assert b"a quoted row" not in orjson.dumps([first, second])
    assert "body" not in first


def test_so_many_are_kept_and_for_so_long(ring: LogRing, kept: Kept, redis_client: Redis) -> None:
    for n in range(1000):
        _log.info("line %d", n)
        if n % 100 == 99:
            ring.write()
    lines = kept()
    assert lines[-1]["message"] == "line 999"
    assert 100 <= len(lines) <= 300  # Redis removes whole nodes
    left_s: Any = redis_client.ttl(log_key(7))
    assert 0 < left_s <= 86_400


def test_lines_that_are_long_are_cut_and_those_that_come_too_fast_dropped_and_counted(
    ring: LogRing, kept: Kept
) -> None:
    _log.info("x" * 100_000)
    ring.write()
    [line] = kept()
    assert len(line["message"]) < 2100
    assert line["message"].endswith("…")
    for n in range(log_ring.BUFFERED + 20):
        _log.info("line %d", n)
    ring.write()
    lines = kept()
    assert lines[-1]["message"].startswith("20 lines were dropped")
    assert lines[-2]["message"] == f"line {log_ring.BUFFERED + 19}"


def test_while_redis_is_away_lines_are_dropped_and_nothing_waits(
    ring: LogRing, kept: Kept, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(**_: object) -> None:
        raise redis.ConnectionError("away")

    with monkeypatch.context() as patch:
        patch.setattr(redis_client, "pipeline", away)
        _log.info("lost")
        ring.write()
    _log.info("back")
    ring.write()
    dropped = "1 lines were dropped: Redis was away, or they were too many"
    assert [line["message"] for line in kept()] == ["back", dropped]


def test_a_stopped_ring_has_written_everything(kept: Kept, redis_client: Redis) -> None:
    ring = LogRing(redis_client, 7, 100)
    ring.start()
    logging.getLogger("tests.other").error("the last")
    ring.stop()
    assert [line["message"] for line in kept()] == ["the last"]
    logging.getLogger("tests.other").error("after it")
    ring.write()
    assert len(kept()) == 1


def test_lines_and_points_of_another_release_are_left_out() -> None:
    assert parse_lines([(b"1-0", [b"other", b"x"]), (b"2-0", [])]) == []
    assert history.parse_points([b"{", b'{"at": 1}']) == []


def reading() -> ReportSet:
    calls = "millrace_calls_total"
    increases = {
        (calls, (("class", "interactive"), ("model", "m@1"), ("outcome", "succeeded"))): 60.0,
        (calls, (("class", "interactive"), ("model", "m@1"), ("outcome", "engine_error"))): 12.0,
        ("millrace_items_total", (("model", "m@1"), ("outcome", "failed"))): 6.0,
        ("millrace_device_busy_seconds_total", (("device", "cpu"),)): 30.0,
    }
    gauges = {("millrace_queue_items", (("model", "m@1"),)): 7.0}
    return ReportSet([Report("1", "worker", 0.0, WindowDelta(60.0, increases, gauges), {})])


def test_a_point_has_the_rates_of_its_moment_and_of_nobody_nothing_is_known() -> None:
    point = history.Point.from_reports(reading(), 5.0)
    assert (point.calls_s, point.items_s, point.failures_s) == pytest.approx((1.2, 0.1, 0.3))
    assert (point.waiting, point.busy, point.rows, point.p99_s) == (7.0, 0.5, None, None)
    nobody = history.Point.from_reports(ReportSet(()), 5.0)
    assert (nobody.calls_s, nobody.waiting, nobody.busy) == (0.0, None, None)


def test_keepers_write_one_point_each_turn_and_so_many_in_all(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "INTERVAL_S", 3600.0)
    for _ in range(history.MAX_POINTS + 3):
        assert history.write(redis_client, reading())
        assert not history.write(redis_client, reading())  # another keeper has just
        redis_client.delete("millrace:history:turn")
    kept = history.parse_points(redis_client.lrange(history.KEY, 0, -1))
    assert len(kept) == history.MAX_POINTS
    assert kept[-1].calls_s == 1.2
