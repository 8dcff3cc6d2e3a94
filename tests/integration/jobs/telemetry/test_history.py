"""Half an hour of a few figures."""

import pytest
import redis

from jobs.telemetry.reports import history
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import WindowDelta


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


def test_a_point_has_the_rates_of_its_moment() -> None:
    point = history.Point.from_reports(reading(), 5.0)
    assert (point.calls_s, point.items_s, point.failures_s) == pytest.approx((1.2, 0.1, 0.3))
    assert (point.waiting, point.busy, point.rows, point.p99_s) == (7.0, 0.5, None, None)


def test_of_nobody_nothing_is_known() -> None:
    point = history.Point.from_reports(ReportSet(()), 5.0)
    assert (point.calls_s, point.waiting, point.busy) == (0.0, None, None)


def test_keepers_write_one_point_each_turn_and_so_many_in_all(redis_client: "redis.Redis") -> None:
    for _ in range(history.MAX_POINTS + 3):
        assert history.write(redis_client, reading())
        assert not history.write(redis_client, reading())  # another keeper has just
        redis_client.delete("millrace:history:turn")
    kept = history.parse_points(redis_client.lrange(history.KEY, 0, -1))
    assert len(kept) == history.MAX_POINTS
    assert kept[-1].calls_s == 1.2


def test_points_of_another_release_are_left_out() -> None:
    assert history.parse_points([b"{", b'{"at": 1}']) == []
