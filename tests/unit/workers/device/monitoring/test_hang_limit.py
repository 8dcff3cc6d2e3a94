"""A launch that takes far longer than others hangs, unless it may just be slow."""

import pytest

from jobs.models.model import Limits
from workers.device.monitoring.hang_limit import hang_limit_s
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.latency import LatencyModel

LIMITS = Limits(max_launch_s=60)


class Waiting:
    """A call, as far as its lane matters."""

    def __init__(self, lane: str) -> None:
        self.lane = lane


def launch(predicted_s: float, lane: str = "{}/0") -> Launch:
    call = Entry(Waiting(lane), 0, "{}/0", 0, 1, None, 0.0)
    made = Launch({}, "pace", [call], [], 0.0)
    made.predicted_s = predicted_s
    return made


def observed(launches: int, seconds: float) -> LatencyModel:
    latency = LatencyModel()
    for _ in range(launches):
        latency.observe(LaunchSize.alike(1, 1), seconds)
    return latency


@pytest.mark.parametrize(
    ("predicted_s", "limit_s"), [(2.0, 6.0), (0.001, 1.0), (0.3, 1.0), (30.0, 60.0)]
)
def test_the_limit_is_three_times_the_prediction(predicted_s: float, limit_s: float) -> None:
    latency = observed(20, predicted_s)
    found = hang_limit_s(LIMITS, latency, launch(predicted_s), alone=False)
    assert found == pytest.approx(limit_s)


def test_launches_that_differ_may_differ() -> None:
    latency = observed(30, 1.0)
    for _ in range(10):
        latency.observe(LaunchSize.alike(1, 1), 4.0)
    assert hang_limit_s(LIMITS, latency, launch(1.0), alone=False) > 6.0


def test_few_launches_or_one_alone_are_no_measure() -> None:
    assert hang_limit_s(LIMITS, observed(19, 0.01), launch(0.01), alone=False) == 60
    latency = observed(20, 0.01)
    assert hang_limit_s(LIMITS, latency, launch(0.01), alone=True) == 60
    assert hang_limit_s(LIMITS, latency, launch(0.01, "alone:{}/0"), alone=False) == 60
