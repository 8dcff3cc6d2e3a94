"""Launches of items give way to launches of calls, and end all the same."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.wait import PATIENCE_S, eventually
from workers.engines.preemption import Priority, PrioritySemaphore, Turn, yield_point


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that gave way waits for the others, however late they wake up."""
    monkeypatch.setattr("workers.engines.preemption.FLOOR", 1e-9)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


class Launch:
    """Launch whose parts are let go one by one."""

    def __init__(
        self, device: PrioritySemaphore, priority: Priority, told: list[str], name: str
    ) -> None:
        self.turn = Turn(priority, lambda: None, lambda: told.append(name))
        self.waiting = threading.Event()
        self.turn.on_wait = self.waiting.set
        self.began, self.go = threading.Event(), threading.Semaphore(0)
        self._device = device

    def run(self, parts: int = 1) -> None:
        with self.turn, self._device.held():
            self.began.set()
            for _ in range(parts):
                assert self.go.acquire(timeout=PATIENCE_S)
                yield_point()


Start = Callable[..., Launch]


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def start(pool: ThreadPoolExecutor, told: list[str]) -> Start:
    """Starts a launch on a device."""

    def _start(device: PrioritySemaphore, priority: Priority, name: str, parts: int = 1) -> Launch:
        launch = Launch(device, priority, told, name)
        pool.submit(launch.run, parts)
        assert launch.waiting.wait(PATIENCE_S)
        return launch

    return _start


def test_items_give_way_at_the_next_point_and_go_on_afterwards(
    start: Start, told: list[str]
) -> None:
    device = PrioritySemaphore(1)
    items = start(device, Priority.ITEMS, "items", parts=2)
    assert items.began.wait(PATIENCE_S)
    calls = start(device, Priority.CALLS, "calls")
    eventually(lambda: device.waiting)
    items.go.release()
    assert calls.began.wait(PATIENCE_S)
    assert told == ["items", "calls"]
    calls.go.release()
    eventually(lambda: told == ["items", "calls", "items"])
    items.go.release()
    eventually(lambda: items.turn.holds is None)
    assert items.turn.waited_s > 0


def test_one_of_two_gives_way_to_one(start: Start, told: list[str]) -> None:
    device = PrioritySemaphore(2)
    both = [start(device, Priority.ITEMS, name, parts=2) for name in ("a", "b")]
    assert all(launch.began.wait(PATIENCE_S) for launch in both)
    calls = start(device, Priority.CALLS, "calls")
    eventually(lambda: device.waiting)
    for launch in both:
        launch.go.release()
    assert calls.began.wait(PATIENCE_S)
    assert [launch.turn.holds for launch in both].count(None) <= 1
    for launch in (calls, *both):
        launch.go.release()
    eventually(lambda: all(launch.turn.holds is None for launch in both))
    assert sorted(told) in (["a", "a", "b", "calls"], ["a", "b", "b", "calls"])


def test_calls_do_not_give_way(start: Start, told: list[str]) -> None:
    device = PrioritySemaphore(1)
    one = start(device, Priority.CALLS, "one")
    assert one.began.wait(PATIENCE_S)
    other = start(device, Priority.CALLS, "other")
    eventually(lambda: device.waiting)
    one.go.release()
    assert other.began.wait(PATIENCE_S)
    other.go.release()
    eventually(lambda: other.turn.holds is None)
    assert told == ["one", "other"]
    assert (one.turn.waited_s, other.turn.waited_s) == (0, 0)


def test_items_that_never_get_a_turn_get_their_share(
    start: Start, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.engines.preemption._PATIENCE_S", 0.0)
    device = PrioritySemaphore(1)
    calls = [start(device, Priority.CALLS, str(n)) for n in range(3)]
    items = start(device, Priority.ITEMS, "items")
    for launch in (*calls, items):
        launch.go.release()
    eventually(lambda: items.began.is_set())
    eventually(lambda: all(launch.began.is_set() for launch in calls))


def test_outside_of_a_launch_nothing_gives_way_and_a_launch_may_ask_twice() -> None:
    yield_point()
    device = PrioritySemaphore(1)
    with device.held(), Turn():
        yield_point()
    with Turn(), device.held(), device.held():
        yield_point()
