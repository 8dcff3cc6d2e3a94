"""The latency model against devices whose numbers are known."""

import random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.scheduler.measured import measured
from workers.scheduler.cost import LaunchSize
from workers.scheduler.latency import LatencyModel

C = (0.005, 0.0004, 0.0001, 2e-7)  # fixed, a row, a unit, a unit squared
BUCKETS = (16, 64, 256)
SEEN = st.tuples(st.integers(1, 500), st.integers(1, 500), st.floats(1e-6, 100))


def true_s(work: LaunchSize, c: tuple[float, ...] = C) -> float:
    return c[0] + c[1] * work.rows + c[2] * work.units + c[3] * work.squares


def mixed(draw: random.Random) -> LaunchSize:
    """A launch of rows of one bucket, of all lengths in it."""
    bucket = draw.choice(BUCKETS)
    sizes = [draw.randint(bucket // 4 + 1, bucket) for _ in range(draw.randint(1, 512 // bucket))]
    return LaunchSize.from_sizes(sizes, bucket, pads=False)


def feed(latency: LatencyModel, launches: int, c: tuple[float, ...] = C, seed: int = 1) -> None:
    """Mixed launches, give or take 5 %."""
    draw = random.Random(seed)
    for _ in range(launches):
        work = mixed(draw)
        latency.observe(work, true_s(work, c) * draw.uniform(0.95, 1.05))


def errors(latency: LatencyModel, c: tuple[float, ...] = C) -> list[float]:
    draw = random.Random(99)
    works = [mixed(draw) for _ in range(300)]
    return [abs(latency.predict(work) / true_s(work, c) - 1) for work in works]


@pytest.mark.parametrize("seed", range(5))
def test_launches_of_mixed_lengths_are_predicted_within_a_few_percent(seed: int) -> None:
    latency = LatencyModel()
    feed(latency, 300, seed=seed)
    assert median(errors(latency)) < 0.03


def test_what_a_device_was_like_is_forgotten_but_a_bucket_that_is_slower_is_known() -> None:
    latency, slower = LatencyModel(), tuple(3 * c for c in C)
    feed(latency, 500)
    feed(latency, 300, slower)
    assert median(errors(latency, slower)) < 0.05
    latency, draw = LatencyModel(), random.Random(5)
    for _ in range(400):
        work = mixed(draw)
        latency.observe(work, true_s(work) * (1.5 if work.bucket == 16 else 1.0))
    short = LaunchSize.alike(8, 12, 16)
    assert latency.predict(short) == pytest.approx(1.5 * true_s(short), rel=0.1)


def test_what_the_sweep_found_is_known_though_launches_are_all_alike_since() -> None:
    latency = LatencyModel()
    shapes = [LaunchSize.alike(rows, size) for rows in (1, 4) for size in (3, 16, 64, 128)]
    latency.seed([(work, true_s(work)) for work in shapes])
    for _ in range(1000):
        latency.observe(LaunchSize.alike(4, 128), true_s(LaunchSize.alike(4, 128)))
    one = LaunchSize.alike(1, 3)
    assert latency.predict(one) == pytest.approx(true_s(one), rel=0.2)


def test_before_the_first_launch_nothing_takes_time_and_one_shape_predicts_others() -> None:
    assert LatencyModel().predict95(LaunchSize.alike(1000, 1)) == 0
    assert LatencyModel().knee(100, LaunchSize.alike(1, 16)) == 1
    latency = LatencyModel()
    for _ in range(50):
        latency.observe(LaunchSize.alike(32, 1), 0.05)
    assert latency.predict(LaunchSize.alike(32, 1)) == pytest.approx(0.05)
    assert latency.predict(LaunchSize.alike(1, 1)) == pytest.approx(0.05, rel=0.01)


@given(st.lists(SEEN, min_size=1, max_size=50))
def test_no_launch_is_predicted_to_be_shorter_than_a_smaller_one(seen: list[Any]) -> None:
    latency = LatencyModel()
    for rows, size, seconds in seen:
        latency.observe(LaunchSize.alike(rows, size), seconds)
    small, large = LaunchSize.alike(1, 1), LaunchSize.alike(500, 500)
    assert latency.predict(large) >= latency.predict(small) >= 0
    assert latency.predict95(small) >= latency.predict(small)


def test_nineteen_of_twenty_launches_take_no_longer_than_said() -> None:
    latency, draw = LatencyModel(), random.Random(3)
    feed(latency, 400)
    works = [mixed(draw) for _ in range(1000)]
    within = [true_s(work) * draw.uniform(0.95, 1.05) <= latency.predict95(work) for work in works]
    assert sum(within) > 900


def test_a_fixed_cost_has_its_knee_at_nine_tenths_of_the_rows() -> None:
    assert measured(0.1, 0).knee(100, LaunchSize.alike(1, 1)) == 90


@pytest.mark.parametrize(("c0", "c1"), [(0.1, 0.001), (0.01, 0.001), (0.001, 0.001)])
@pytest.mark.parametrize("size", [1, 16])
def test_the_knee_is_where_nine_tenths_of_the_best_throughput_is_reached(
    c0: float, c1: float, size: int
) -> None:
    latency = measured(c0, c1)

    def throughput(rows: int) -> float:
        return rows / latency.predict(LaunchSize.alike(rows, size))

    knee = latency.knee(100, LaunchSize.alike(1, size))
    assert throughput(knee + 1) >= 0.9 * throughput(100)
    assert knee == 1 or throughput(knee - 1) < 0.9 * throughput(100)
