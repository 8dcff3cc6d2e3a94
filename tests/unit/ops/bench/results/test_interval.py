"""Confidence interval of a cost."""

import numpy as np

from ops.bench.results.statistics import interval


def test_the_interval_holds_a_difference_that_is_there_in_noise_that_both_have() -> None:
    random = np.random.default_rng(1)
    noise = random.normal(5, 1, 40)
    off, on = noise, noise + 0.05 + random.normal(0, 0.01, 40)
    low, high = interval(lambda a, b: float(np.median(b - a)), off, on)
    assert 0.04 < low < 0.05 < high < 0.06


def test_what_is_the_same_costs_nothing() -> None:
    same = np.ones(8)
    assert interval(lambda a, b: float(np.median(b - a)), same, same) == (0, 0)
