"""Deadlines of launches, as the supervisor reads them."""

import mmap

import pytest

from workers.device.monitoring.load_history import LoadHistory
from workers.device.monitoring.watchdog import SIZE, LaunchDeadline, Watch

Both = tuple[LaunchDeadline, Watch]


@pytest.fixture
def both() -> Both:
    watch = Watch()
    return LaunchDeadline(mmap.mmap(watch.fd, SIZE)), watch


def test_a_launch_hangs_once_its_time_is_over(both: Both) -> None:
    progress, watch = both
    with progress.within(60.0, items=1):
        assert watch.busy()
        assert not watch.hangs()
        with progress.within(-1.0, items=1):
            assert watch.hangs()  # the earliest counts
        assert not watch.hangs()
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


def test_a_death_with_calls_alone_in_the_engine_is_no_item_s(both: Both) -> None:
    progress, watch = both
    assert not watch.only_calls()
    with progress.within(60.0, calls=2):
        assert watch.only_calls()
        with progress.within(60.0, items=1):
            assert not watch.only_calls()
        assert watch.only_calls()


def test_the_next_worker_starts_from_nothing(both: Both) -> None:
    progress, watch = both
    progress.set_incarnation(7)
    assert watch.incarnation == 7
    watch.reset()
    assert watch.incarnation == 0


def test_a_launch_that_waits_for_the_device_does_not_hang(both: Both) -> None:
    progress, watch = both
    with progress.within(-1.0, items=1) as stopwatch:
        assert watch.hangs()
        stopwatch.wait()
        assert not watch.hangs()
        assert watch.busy()
        stopwatch.run()
        assert watch.hangs()
    assert not watch.busy()
