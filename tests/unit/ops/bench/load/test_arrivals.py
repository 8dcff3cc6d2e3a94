"""Due times of calls."""

from itertools import pairwise
from statistics import mean, pstdev

import pytest

from ops.bench.load.arrivals import after, compressed, poisson


def test_arrivals_of_a_poisson_process_have_its_rate_and_its_gaps_and_those_of_their_seed() -> None:
    assert poisson(100, 5, 1) == poisson(100, 5, 1) != poisson(100, 5, 2)
    due_s = poisson(1000, 60, 1)
    assert len(due_s) == pytest.approx(60_000, rel=0.02)
    assert due_s == sorted(due_s)
    assert due_s[0] >= 0
    assert due_s[-1] < 60
    gaps = [later - earlier for earlier, later in pairwise(due_s)]
    assert pstdev(gaps) == pytest.approx(mean(gaps), rel=0.05)


def test_a_trace_keeps_its_shape_at_another_rate_and_after_the_warm_up() -> None:
    times = compressed([0.0, 1.0, 2.0, 8.0], 2.0)
    assert times == [0.0, 0.25, 0.5, 2.0]
    assert len(times) / times[-1] == 2.0
    assert after([0.5, 1.5], 2.0, [0.0, 0.25]) == [0.5, 1.5, 2.0, 2.25]
