"""Due times of calls."""

from itertools import pairwise

import pytest

from ops.bench.load.arrivals import after, compressed, poisson


def test_a_seed_gives_the_same_arrivals_and_another_one_others() -> None:
    assert poisson(100, 5, 1) == poisson(100, 5, 1) != poisson(100, 5, 2)


def test_arrivals_of_a_poisson_process_have_its_rate_and_its_gaps() -> None:
    due_s = poisson(1000, 60, 1)
    assert len(due_s) == pytest.approx(60_000, rel=0.02)
    assert due_s == sorted(due_s)
    assert due_s[0] >= 0
    assert due_s[-1] < 60
    gaps = [later - earlier for earlier, later in pairwise(due_s)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance**0.5 == pytest.approx(mean, rel=0.05)


def test_a_trace_keeps_its_shape_at_another_rate() -> None:
    times = compressed([0.0, 1.0, 2.0, 8.0], 2.0)
    assert times == [0.0, 0.25, 0.5, 2.0]
    assert len(times) / times[-1] == 2.0


def test_what_comes_after_the_warm_up_is_as_far_apart_as_before() -> None:
    assert after([0.5, 1.5], 2.0, [0.0, 0.25]) == [0.5, 1.5, 2.0, 2.25]
