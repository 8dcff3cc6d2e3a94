"""The latency model against devices whose two numbers are known."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduler.measured import measured
from workers.scheduler.latency import LatencyModel

C0, C1 = 0.02, 0.001


def feed(latency: LatencyModel, c0: float, c1: float, launches: int, seed: int = 1) -> None:
    """Launches of 1 to 64 that take c0 + c1 x seconds, give or take 5 %."""
    draw = random.Random(seed)
    for _ in range(launches):
        x = draw.randint(1, 64)
        latency.observe(x, (c0 + c1 * x) * draw.uniform(0.95, 1.05))


def numbers(latency: LatencyModel) -> tuple[float, float]:
    c0 = latency.predict(0)
    return c0, latency.predict(1) - c0


@pytest.mark.parametrize("seed", range(5))
def test_both_numbers_are_found_within_a_tenth(seed: int) -> None:
    latency = LatencyModel()
    feed(latency, C0, C1, 200, seed)
    assert numbers(latency) == pytest.approx((C0, C1), rel=0.1)


def test_launches_of_one_size_are_predicted_and_others_alike() -> None:
    latency = LatencyModel()
    for _ in range(50):
        latency.observe(32, 0.05)
    assert latency.predict(32) == pytest.approx(0.05)
    assert latency.predict(1) == pytest.approx(0.05)


def test_what_a_device_was_like_is_forgotten() -> None:
    latency = LatencyModel()
    feed(latency, C0, C1, 500)
    feed(latency, 3 * C0, 2 * C1, 300)
    assert numbers(latency) == pytest.approx((3 * C0, 2 * C1), rel=0.1)


def test_before_the_first_launch_everything_takes_no_time() -> None:
    assert LatencyModel().predict95(1000) == 0
    assert LatencyModel().knee(100, 16) == 1


@given(
    st.lists(
        st.tuples(st.integers(1, 20_000), st.floats(1e-6, 100)),
        min_size=1,
        max_size=50,
    )
)
def test_no_launch_is_predicted_to_be_shorter_than_a_smaller_one(
    seen: list[tuple[int, float]],
) -> None:
    latency = LatencyModel()
    for x, seconds in seen:
        latency.observe(x, seconds)
    c0, _ = numbers(latency)
    assert c0 >= 0
    assert latency.predict(20_000) >= latency.predict(1) >= 0
    assert latency.predict95(1) >= latency.predict(1)


def test_nineteen_of_twenty_launches_take_no_longer_than_said() -> None:
    latency, draw = LatencyModel(), random.Random(3)
    feed(latency, C0, C1, 400)
    within = 0
    for _ in range(1000):
        x = draw.randint(1, 64)
        within += (C0 + C1 * x) * draw.uniform(0.95, 1.05) <= latency.predict95(x)
    assert within > 900


def test_a_fixed_cost_has_its_knee_at_nine_tenths_of_the_rows() -> None:
    assert measured(0.1, 0).knee(100, 1) == 90


@pytest.mark.parametrize(("c0", "c1"), [(0.1, 0.001), (0.01, 0.001), (0.001, 0.001)])
@pytest.mark.parametrize("row_size", [1, 16])
def test_the_knee_is_where_nine_tenths_of_the_best_throughput_is_reached(
    c0: float, c1: float, row_size: int
) -> None:
    latency = measured(c0, c1)

    def share_of_peak(rows: int) -> float:
        def throughput(rows: int) -> float:
            return rows / latency.predict(rows * row_size)

        return throughput(rows) / throughput(100)

    knee = latency.knee(100, row_size)
    assert share_of_peak(knee + 1) >= 0.9
    assert knee == 1 or share_of_peak(knee - 1) < 0.9
