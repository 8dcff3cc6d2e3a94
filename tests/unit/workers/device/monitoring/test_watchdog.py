"""Deadlines of launches, as the supervisor reads them, and how long a launch may take."""

import mmap
from dataclasses import replace
from types import SimpleNamespace

import pytest

from jobs.models.model import Limits
from workers.device.monitoring.hang_limit import hang_limit_s
from workers.device.monitoring.load_history import LoadHistory
from workers.device.monitoring.watchdog import SIZE, LaunchDeadline, Watch
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.latency import LatencyModel

Both = tuple[LaunchDeadline, Watch]


@pytest.fixture
def both() -> Both:
    watch = Watch()
    return LaunchDeadline(mmap.mmap(watch.fd, SIZE)), watch


def test_a_launch_hangs_once_its_time_is_over_unless_it_waits_for_the_device(both: Both) -> None:
    progress, watch = both
    with progress.within(60.0, items=1):
        assert watch.busy()
        assert not watch.hangs()
        with progress.within(-1.0, items=1):
            assert watch.hangs()  # the earliest counts
        assert not watch.hangs()
    assert not watch.busy()
    progress, watch = both
    with progress.within(-1.0, items=1) as stopwatch:
        assert watch.hangs()
        stopwatch.wait()
        assert not watch.hangs()
        assert watch.busy()
        stopwatch.run()
        assert watch.hangs()
    assert not watch.busy()


def test_a_load_may_hang_and_accuses_nobody(both: Both) -> None:
    progress, watch = both
    with progress.loading("a@1", -1.0):
        assert watch.load_hangs()
        assert not watch.hangs()
        assert not watch.busy()
        with progress.within(60.0, items=1):
            assert (watch.loading, watch.hangs()) == ("a@1", False)
    assert not watch.load_hangs()
    assert watch.loading == ""


def test_a_worker_is_told_which_loads_ended_the_ones_before(both: Both) -> None:
    progress, watch = both
    history = LoadHistory(("late@1",), {"left-out@1": "it crashed"})
    watch.reset(history)
    progress.set_incarnation(8)
    with progress.loading("é" * 300, 60.0), progress.within(1.0, items=1):
        assert progress.load_history() == history
        assert watch.incarnation == 8
    watch.reset()
    assert progress.load_history() == LoadHistory()
    progress.hold(["a@1"])
    progress.forget_held()  # by its loader, which is late
    watch.reset(history)
    next_one = LaunchDeadline(mmap.mmap(watch.fd, SIZE))
    assert next_one.load_history() == replace(history, held=("a@1",))
    next_one.forget_held()
    assert next_one.load_history() == history
    watch.reset()
    assert watch.incarnation == 0


def test_a_death_with_calls_alone_in_the_engine_is_no_item_s(both: Both) -> None:
    progress, watch = both
    assert not watch.only_calls()
    with progress.within(60.0, calls=2):
        assert watch.only_calls()
        with progress.within(60.0, items=1):
            assert not watch.only_calls()
        assert watch.only_calls()


def limit_s(
    latency: LatencyModel, predicted_s: float, lane: str = "{}/0", alone: bool = False
) -> float:
    call = Entry(SimpleNamespace(lane=lane), 0, "{}/0", 0, 1, None, 0.0)
    launch = Launch({}, "pace", [call], [], 0.0, predicted_s=predicted_s)
    return hang_limit_s(Limits(max_launch_s=60), latency, launch, alone=alone)


def observed(launches: int, seconds: float) -> LatencyModel:
    latency = LatencyModel()
    for _ in range(launches):
        latency.observe(LaunchSize.alike(1, 1), seconds)
    return latency


@pytest.mark.parametrize(
    ("predicted_s", "most_s"), [(2.0, 6.0), (0.001, 1.0), (0.3, 1.0), (30.0, 60.0)]
)
def test_the_limit_is_three_times_the_prediction(predicted_s: float, most_s: float) -> None:
    assert limit_s(observed(20, predicted_s), predicted_s) == pytest.approx(most_s)


def test_launches_that_differ_may_differ_and_few_or_one_alone_are_no_measure() -> None:
    latency = observed(30, 1.0)
    for _ in range(10):
        latency.observe(LaunchSize.alike(1, 1), 4.0)
    assert limit_s(latency, 1.0) > 6.0
    assert limit_s(observed(19, 0.01), 0.01) == 60
    assert limit_s(observed(20, 0.01), 0.01, alone=True) == 60
    assert limit_s(observed(20, 0.01), 0.01, "alone:{}/0") == 60
