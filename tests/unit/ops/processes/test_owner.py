"""Threads and steps of a supervisor: faults are said, tried again, and end it where that fails."""

import threading
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


def test_a_thread_that_goes_on_failing_ends_the_supervisor_by_one_line(
    stopping: threading.Event, time: Time
) -> None:
    supervisor, told = Supervisor(), dict[float, str]()

    def work() -> None:
        time.now_s += 1.0
        try:
            supervisor.poll()
        except Failed as error:
            told[time.now_s] = error.message
            stopping.set()
        raise KeyError("a fault")

    owner.keep("some work", work, stopping).join(PATIENCE_S)
    [(at_s, message)] = told.items()
    assert at_s == 61.0
    expected = "the thread 'some work' has failed for 60 s, at last by KeyError ('a fault'); see"
    assert message.startswith(expected)
    assert "\n" not in message
    supervisor.poll()


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
