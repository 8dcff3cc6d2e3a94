"""Confidence sequence of the ratio of costs."""

import random

import pytest

from jobs.rollouts.cost import LEAST, CostRatio, Interval


def fill(ratio: CostRatio, rng: random.Random, count: int, factor: float) -> None:
    for _ in range(count):
        ratio.add(rng.lognormvariate(0, 0.5) * factor, canary=True)
        ratio.add(rng.lognormvariate(0, 0.5), canary=False)


def interval(ratio: CostRatio) -> Interval:
    found = ratio.interval(0.01)
    assert found
    return found


def test_there_is_no_interval_before_a_hundred_observations() -> None:
    ratio = CostRatio()
    fill(ratio, random.Random(1), LEAST - 1, 1.0)
    assert ratio.interval(0.01) is None
    fill(ratio, random.Random(2), 1, 1.0)
    assert ratio.interval(0.01) is not None


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


def test_a_dearer_version_is_found_and_one_outlier_is_not_one() -> None:
    ratio, rng = CostRatio(), random.Random(5)
    fill(ratio, rng, 1000, 1.2)
    assert interval(ratio).low > 1
    alike = CostRatio()
    fill(alike, rng, 1000, 1.0)
    alike.add(1e6, canary=True)
    assert interval(alike).ratio == pytest.approx(1, abs=0.1)


def test_a_caller_is_one_observation() -> None:
    ratio = CostRatio()
    for n in range(1000):
        for canary in (True, False):
            ratio.add(1.0 + n % 7, canary=canary, unit=str(n % (LEAST - 1)))
    assert ratio.interval(0.01) is None


def test_equal_costs_differ_by_nothing() -> None:
    ratio = CostRatio()
    for _ in range(LEAST):
        ratio.add(1.1, canary=True)
        ratio.add(1.0, canary=False)
    assert str(interval(ratio)) == "+10.0% (+10.0% to +10.0%)"


def test_a_dearer_version_is_no_outlier_where_costs_hardly_differ() -> None:
    ratio = CostRatio()
    for n in range(10 * LEAST):
        ratio.add(1.0 + n % 2 / 100, canary=False)
        if n >= LEAST:  # the control's quantile is known from then on
            ratio.add(1.2 + n % 2 / 100, canary=True)
    assert interval(ratio).ratio == pytest.approx(1.2, abs=0.01)
