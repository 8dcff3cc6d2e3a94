"""How often a worker asks a Redis that fails, and calls that leave the device no time for items."""

from unittest.mock import Mock

import pytest
import redis

from workers.device.backpressure import Backpressure
from workers.device.call_puller import CallPuller


class Bench:
    def __init__(self, now: list[float]) -> None:
        self.now, self.lanes = now, Mock()
        self.puller = CallPuller(self.lanes, "worker-1", 6.0)

    def fail(self, error: Exception | None) -> None:
        """Lets commands fail with this from now on, or succeed."""
        for command in (self.lanes.look, self.lanes.notify, self.lanes.announce):
            command.side_effect = error

    def looks_in(self, seconds: int) -> int:
        """Number of looks at Redis, of one every tenth of a second."""
        self.lanes.look.reset_mock()
        for _ in range(10 * seconds):
            self.puller.look("worker-1/0")
            self.now[0] += 0.1
        return int(self.lanes.look.call_count)


@pytest.fixture
def bench(now: list[float]) -> Bench:
    return Bench(now)


def test_a_redis_that_refuses_is_asked_every_second(bench: Bench) -> None:
    bench.fail(redis.ConnectionError("refused"))
    assert 18 <= bench.looks_in(20) <= 20


def test_a_silent_redis_is_asked_ever_more_seldom_until_an_announcement_succeeds(
    bench: Bench,
) -> None:
    bench.fail(redis.TimeoutError("silent"))
    assert bench.looks_in(7) == 3  # at 0, 1 and 3 s
    assert bench.looks_in(80) <= 11
    bench.fail(None)
    bench.puller.announce()
    bench.fail(redis.ConnectionError("refused"))
    assert bench.looks_in(1) == 1
    assert bench.looks_in(2) == 2


def test_a_slot_waits_in_its_process_while_redis_takes_no_notification(bench: Bench) -> None:
    assert bench.puller.wait_for_wakeup("worker-1/0", 1.0)
    bench.fail(redis.OutOfMemoryError("command not allowed"))
    bench.puller.notify("worker-1/0")
    bench.fail(None)
    bench.puller.announce()  # its script is let through
    bench.now[0] += 4.9
    assert not bench.puller.wait_for_wakeup("worker-1/0", 1.0)
    bench.now[0] += 0.2
    assert bench.puller.wait_for_wakeup("worker-1/0", 1.0)
    assert bench.lanes.wait_for_wakeup.call_count == 2


def heartbeat(flow: Backpressure, *, waiting: int, items: int, calls: int) -> bool:
    flow.count_launch(items, calls)
    return flow.update(waiting)


def test_it_begins_once_items_hardly_move_twice_and_stays_until_all_can_be_launched() -> None:
    flow = Backpressure()
    for items in (0, 100, 99):
        assert not heartbeat(flow, waiting=1000, items=items, calls=500)
    assert heartbeat(flow, waiting=1000, items=99, calls=500)
    assert flow.active
    flow = Backpressure(active=True)
    assert heartbeat(flow, waiting=1000, items=900, calls=100)
    assert not heartbeat(flow, waiting=1000, items=1000, calls=100)
    assert not flow.active


def test_there_is_none_without_calls_or_without_items() -> None:
    assert not heartbeat(Backpressure(active=True), waiting=1000, items=0, calls=0)
    for waiting, items, calls in ((4000, 1, 0), (0, 0, 500)):
        flow = Backpressure()
        for _ in range(5):
            assert not heartbeat(flow, waiting=waiting, items=items, calls=calls)
