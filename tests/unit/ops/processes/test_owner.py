"""Threads and steps of a supervisor: faults are said, tried again, and end it where that fails."""

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from jobs import clock
from jobs.telemetry import faults
from ops.processes import owner
from ops.processes.children import Child, Supervisor
from ops.processes.owner import Failed, Step
from tests.support.wait import PATIENCE_S, eventually


class Time:
    """Clock that a test advances."""

    now_s = 0.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "monotonic", lambda: time.now_s)
    return time


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Event that ends the threads of a test."""
    monkeypatch.setattr(faults, "_FIRST_PAUSE_S", 0.0)
    event = threading.Event()
    yield event
    event.set()


def failing(act: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Work that does this, and then fails."""

    def work() -> None:
        act()
        raise KeyError("a fault")

    return work


def test_a_thread_that_fails_is_begun_again(
    stopping: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    runs = list[int]()

    def work() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise KeyError("a fault")

    owner.keep("some work", work, stopping).join(PATIENCE_S)
    assert len(runs) == 3
    assert ["'some work' failed" in each.getMessage() for each in caplog.records] == [True, True]
    owner.check()


@pytest.mark.parametrize(("run_s", "ends_at_s"), [(1.0, 61.0), (14.0, 84.0)])
def test_a_thread_that_goes_on_failing_ends_the_supervisor_by_one_line(
    stopping: threading.Event, time: Time, run_s: float, ends_at_s: float
) -> None:
    supervisor, told = Supervisor(), dict[float, str]()

    def work() -> None:
        time.now_s += run_s
        try:
            supervisor.poll()
        except Failed as error:
            told[time.now_s] = error.message
            stopping.set()
        if time.now_s < 100.0:
            raise KeyError("a fault")

    owner.keep("some work", work, stopping).join(PATIENCE_S)
    [(at_s, message)] = told.items()
    assert at_s == ends_at_s
    assert message.startswith(
        f"the thread 'some work' has failed for {at_s - run_s:.0f} s, at last"
    )
    assert "at last by KeyError ('a fault'); see" in message
    assert "\n" not in message
    supervisor.poll()


def test_a_thread_that_goes_on_for_a_while_each_time_ends_nothing(
    stopping: threading.Event, time: Time
) -> None:
    checked = list[float]()

    def work() -> None:
        time.now_s += 15.0
        try:
            owner.check()
        except Failed:
            return
        checked.append(time.now_s)
        if time.now_s < 300.0:
            raise KeyError("a fault")

    owner.keep("some work", work, stopping).join(PATIENCE_S)
    assert checked == [15.0 * run for run in range(1, 21)]


def test_a_fault_keeps_nothing_that_its_frames_held(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Held:
        pass

    held = list[weakref.ref[Held]]()

    def act() -> None:
        large = Held()
        held.append(weakref.ref(large))
        raise KeyError("a fault")

    step = Step("a step", act)
    # pytest keeps records, with the traceback.
    monkeypatch.setattr(logging.getLogger(faults.__name__), "disabled", True)
    step()
    gc.collect()
    assert held[0]() is None


def test_a_fault_of_a_thread_that_ends_by_itself_is_said(caplog: pytest.LogCaptureFixture) -> None:
    owner.spawn("some work", failing())
    eventually(lambda: "the thread 'some work' failed" in caplog.text)
    assert "KeyError" in caplog.text


def test_a_step_that_fails_is_left_out_for_a_while(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_FIRST_PAUSE_S", 0.5)
    taken = list[float]()
    step = Step("a step", failing(lambda: taken.append(time.now_s)))
    for half in range(20):
        time.now_s = half / 2
        step()
    assert taken == [0.0, 0.5, 1.5, 3.5, 7.5]


def test_a_step_that_goes_on_failing_ends_the_supervisor_and_one_that_recovers_does_not(
    time: Time,
) -> None:
    broken = [True]

    def act() -> None:
        if broken[0]:
            raise KeyError("a fault")

    step = Step("a step", act)

    def take(until_s: int) -> None:
        while time.now_s < until_s:
            time.now_s += 1.0
            step()

    take(50)
    broken[0] = False
    take(60)
    broken[0] = True
    take(110)
    take(119)
    with pytest.raises(Failed, match=r"a step has failed for 6\d s"):
        take(130)


def test_a_step_that_fails_now_and_then_ends_nothing(time: Time) -> None:
    def act() -> None:
        if time.now_s % 3 == 0:
            raise KeyError("a fault")

    step = Step("a step", act)
    for now_s in range(200):
        time.now_s = float(now_s)
        step()


def test_a_step_that_takes_long_before_it_fails_ends_the_supervisor(time: Time) -> None:
    def act() -> None:
        time.now_s += 20.0
        raise KeyError("a fault")

    step = Step("a step", act)

    def take() -> None:
        for _ in range(10):
            time.now_s += 1.0
            step()

    with pytest.raises(Failed, match=r"a step has failed for \d+ s"):
        take()
    assert time.now_s < 100


@pytest.mark.heavy  # starts processes
def test_what_retires_is_killed_after_its_grace_whatever_the_watch_of_another_raises(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = [Child(name, ["sleep", "600"]) for name in ("faulty", "other")]
    supervisor = Supervisor(children)
    supervisor.start()
    processes = [child.process for child in children]
    try:
        for child in children:
            monkeypatch.setattr(child, "terminate", lambda: None)
            supervisor.retire(child, 10.0)
        monkeypatch.setattr(children[0], "watch", failing())
        monkeypatch.setattr(children[0], "retired", failing())
        supervisor.poll()
        time.now_s = 11.0
        supervisor.poll()
        assert [child.alive() for child in children] == [False, False]
        assert list(supervisor.retiring.values()) == children[:1]
    finally:
        for process in processes:
            assert process
            process.kill()
            process.wait()


def test_a_child_that_cant_be_watched_ends_no_other_and_at_last_the_supervisor(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = [Child(name, ["true"]) for name in ("faulty", "other")]
    supervisor, looks = Supervisor(children), list[float]()
    monkeypatch.setattr(children[0], "keep_alive", failing())
    monkeypatch.setattr(children[1], "keep_alive", lambda: looks.append(time.now_s))

    def poll(until_s: int) -> None:
        while time.now_s < until_s:
            time.now_s += 1.0
            supervisor.poll()

    poll(58)
    assert looks == list(range(1, 59))
    with pytest.raises(Failed, match=r"the watch of faulty has failed for 6\d s"):
        poll(70)
