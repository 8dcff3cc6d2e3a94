"""Evidence of a rollout: the betting e-process, the ratio of costs, and figures of one lane."""

import random
from statistics import mean

import pytest

from jobs.rollouts import share
from jobs.rollouts.cost import LEAST, CostRatio, Interval
from jobs.rollouts.evidence import STAKES, Evidence, LaunchShare
from jobs.rollouts.lane_figures import LaneFigures
from jobs.rollouts.records import LaunchRecord


def test_an_event_pays_fair_odds_alone_or_among_many() -> None:
    for chance in (0.05, 0.5):
        won, lost = Evidence(), Evidence()
        won.add(True, chance)
        lost.add(False, chance)
        assert won.value == pytest.approx(1 + mean(STAKES) * (1 - chance) / chance)
        assert chance * won.value + (1 - chance) * lost.value == pytest.approx(1)
    once, often = Evidence(), Evidence()
    once.add(False, 0.2, 7)
    for _ in range(7):
        often.add(False, 0.2)
    assert once.value == pytest.approx(often.value)
    assert once.events == often.events == 7


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_alike_versions_alarm_as_rarely_as_promised_at_any_look(share: float) -> None:
    rng, alarms, runs = random.Random(3), 0, 300
    for _ in range(runs):
        evidence = Evidence()
        for _ in range(300):
            evidence.add(rng.random() < share, share)
            if evidence.value >= 20:  # at most one in twenty
                alarms += 1
                break
    assert alarms <= 0.05 * runs


def test_a_worse_version_is_found_and_the_share_of_launches_errs_to_the_safe_side() -> None:
    evidence = Evidence()
    for _ in range(12):
        evidence.add(True, 0.5)
    assert evidence.value > 200
    share = LaunchShare()
    assert share.value is None
    share.add(canary=100, stable=1900)
    assert share.value is not None
    assert 0.05 < share.value < 0.06


def fill(ratio: CostRatio, rng: random.Random, count: int, factor: float) -> None:
    for _ in range(count):
        ratio.add(rng.lognormvariate(0, 0.5) * factor, canary=True)
        ratio.add(rng.lognormvariate(0, 0.5), canary=False)


def known_interval(ratio: CostRatio) -> Interval:
    found = ratio.interval(0.01)
    assert found
    return found


def test_there_is_no_interval_before_a_hundred_observations_of_a_caller_each() -> None:
    ratio = CostRatio()
    fill(ratio, random.Random(1), LEAST - 1, 1.0)
    assert ratio.interval(0.01) is None
    fill(ratio, random.Random(2), 1, 1.0)
    assert ratio.interval(0.01) is not None
    ratio = CostRatio()
    for n in range(1000):
        for canary in (True, False):
            ratio.add(1.0 + n % 7, canary=canary, unit=str(n % (LEAST - 1)))
    assert ratio.interval(0.01) is None


def test_the_interval_holds_at_every_look() -> None:
    runs, missed = 100, 0
    for seed in range(runs):
        ratio, rng = CostRatio(), random.Random(seed)
        for _ in range(60):
            fill(ratio, rng, 20, 1.2)
            found = ratio.interval(0.05)
            if found and not found.low < 1.2 < found.high:
                missed += 1
                break
    assert missed <= 0.1 * runs  # both bounds


def test_a_dearer_version_is_found_one_outlier_is_not_one_and_equal_costs_differ_by_nothing() -> (
    None
):
    ratio, rng = CostRatio(), random.Random(5)
    fill(ratio, rng, 1000, 1.2)
    assert known_interval(ratio).low > 1
    alike = CostRatio()
    fill(alike, rng, 1000, 1.0)
    alike.add(1e6, canary=True)
    assert known_interval(alike).ratio == pytest.approx(1, abs=0.1)
    ratio = CostRatio()
    for n in range(10 * LEAST):
        ratio.add(1.0 + n % 2 / 100, canary=False)
        if n >= LEAST:  # the control's quantile is known from then on
            ratio.add(1.2 + n % 2 / 100, canary=True)
    assert known_interval(ratio).ratio == pytest.approx(1.2, abs=0.01)
    ratio = CostRatio()
    for _ in range(LEAST):
        ratio.add(1.1, canary=True)
        ratio.add(1.0, canary=False)
    assert str(known_interval(ratio)) == "+10.0% (+10.0% to +10.0%)"


def test_shares_are_of_launches_or_of_sticky_callers_and_costs_of_calls() -> None:
    assert LaneFigures().as_json(0.01) == {}
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
    lane = LaneFigures()
    for n in range(40):
        lane.add(LaunchRecord(n, "canary", 1, int(n % 4 == 0), unit=f"u{n % 4}"))
    assert lane.as_json(0.01)["failed_share"][0] == 0.25


def test_an_interval_holds_the_share_and_misses_it_seldom_however_often_one_looks() -> None:
    for events, count in ((0, 0), (0, 300), (1, 1), (300, 300), (7, 300)):
        low, high = share.interval(events, count, 0.01)
        assert 0 <= low <= (events / count if count else 0.5) <= high <= 1
        assert (low > 0, high < 1) == (events > 0, events < count)
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
