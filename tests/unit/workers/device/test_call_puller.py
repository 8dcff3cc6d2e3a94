"""How often a worker asks a Redis that fails: each try holds up the device."""

from typing import Any

import pytest
import redis

from jobs import clock
from workers.device.call_puller import CallPuller


class Lanes:
    """Lanes whose commands raise `error`, if any."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.looks = self.waits = 0

    def look(self, slot: str, least_ms: object) -> Any:
        self.looks += 1
        raise self.error or NotImplementedError

    def notify(self, slot: str) -> None:
        if self.error:
            raise self.error

    def wait_for_wakeup(self, slot: str, timeout_s: float, tier: int) -> None:
        self.waits += 1

    def announce(self, *_: object, **__: object) -> None:
        if self.error:
            raise self.error


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.lanes = 1000.0, Lanes()
        lanes: Any = self.lanes
        self.puller = CallPuller(lanes, "worker-1", 6.0)
        monkeypatch.setattr(clock, "monotonic", lambda: self.now_s)

    def looks_in(self, seconds: int) -> int:
        """Number of looks at Redis, of one every tenth of a second."""
        before = self.lanes.looks
        for _ in range(10 * seconds):
            self.puller.look("worker-1/0")
            self.now_s += 0.1
        return self.lanes.looks - before


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_redis_that_refuses_is_asked_every_second(bench: Bench) -> None:
    bench.lanes.error = redis.ConnectionError("refused")
    assert 18 <= bench.looks_in(20) <= 20


def test_a_silent_redis_is_asked_ever_more_seldom(bench: Bench) -> None:
    bench.lanes.error = redis.TimeoutError("silent")
    assert bench.looks_in(7) == 3  # at 0, 1 and 3 s
    assert bench.looks_in(80) <= 11


def test_an_announcement_that_succeeds_ends_the_pause(bench: Bench) -> None:
    bench.lanes.error = redis.TimeoutError("silent")
    bench.looks_in(60)
    bench.lanes.error = None
    bench.puller.announce()
    bench.lanes.error = redis.ConnectionError("refused")
    assert bench.looks_in(1) == 1
    assert bench.looks_in(2) == 2


def test_a_slot_waits_in_its_process_while_redis_takes_no_notification(bench: Bench) -> None:
    assert bench.puller.wait_for_wakeup("worker-1/0", 1.0)
    bench.lanes.error = redis.OutOfMemoryError("command not allowed")
    bench.puller.notify("worker-1/0")
    bench.lanes.error = None
    bench.puller.announce()  # its script is let through
    bench.now_s += 4.9
    assert not bench.puller.wait_for_wakeup("worker-1/0", 1.0)
    bench.now_s += 0.2
    assert bench.puller.wait_for_wakeup("worker-1/0", 1.0)
    assert bench.lanes.waits == 2
