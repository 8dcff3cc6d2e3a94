"""Figures of one lane, and the interval of a share."""

import random

import pytest

from jobs.rollouts import share
from jobs.rollouts.lane_figures import LaneFigures
from jobs.rollouts.records import LaunchRecord


def test_nothing_is_said_of_a_lane_without_launches() -> None:
    assert LaneFigures().as_json(0.01) == {}


def test_shares_are_of_launches_and_costs_of_calls() -> None:
    lane = LaneFigures()
    for n in range(40):
        failed = 2 if n < 4 else 0  # all calls of these launches: they cost nothing that counts
        lane.add(LaunchRecord(n, "canary", 2, failed, latency_ms=n + 1, device_ms=8, price=3))
    found = lane.as_json(0.01)
    low, high = share.interval(4, 40, 0.01)
    assert found["failed_share"] == [0.1, round(low, 6), round(high, 6)]
    assert found["latency_ms"] == [22, 38]  # of 5 to 40
    assert (found["device_ms"], found["price"]) == (4, 1.5)
    assert "ttft_ms" not in found


def test_a_sticky_caller_counts_once() -> None:
    lane = LaneFigures()
    for n in range(40):
        lane.add(LaunchRecord(n, "canary", 1, int(n % 4 == 0), unit=f"u{n % 4}"))
    assert lane.as_json(0.01)["failed_share"][0] == 0.25


@pytest.mark.parametrize(("events", "count"), [(0, 0), (0, 300), (1, 1), (300, 300), (7, 300)])
def test_an_interval_holds_the_share_that_was_seen(events: int, count: int) -> None:
    low, high = share.interval(events, count, 0.01)
    assert 0 <= low <= (events / count if count else 0.5) <= high <= 1
    assert (low > 0) == (events > 0)
    assert (high < 1) == (events < count)


def test_an_interval_misses_the_share_seldom_however_often_one_looks() -> None:
    rng, missed = random.Random(5), 0
    for _ in range(300):
        events = 0
        for n in range(1, 400):
            events += rng.random() < 0.1
            low, high = share.interval(events, n, 0.1) if n % 20 == 0 else (0.0, 1.0)
            if not low <= 0.1 <= high:
                missed += 1
                break
    assert missed <= 30
