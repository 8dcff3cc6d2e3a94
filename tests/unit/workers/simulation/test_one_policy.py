"""The worker and the simulator decide by the same code: what changes one changes the other."""

from collections.abc import Iterator
from math import inf
from random import Random
from typing import Any

import pytest

import workers.device.model_host
import workers.simulation.replica
from jobs import clock
from jobs.calls.lanes import Terms, lane_name
from jobs.calls.memory import MemoryLanes
from jobs.calls.messages import Call
from tests.support.wait import eventually
from tests.unit.workers.simulation.made import BATCHSTRING
from workers.device.call_puller import CallPuller
from workers.device.model_host import ModelHost
from workers.engines.echo import Echo
from workers.scheduler import scheduler
from workers.scheduler.policy import Flush, LaunchPolicy, Wait
from workers.simulation.costs import LaunchTimes
from workers.simulation.run import simulate

HOUR_S, HOUR_MS = 3600.0, 3_600_000
TIMES = LaunchTimes(0.01)


@pytest.fixture
def lanes() -> MemoryLanes:
    return MemoryLanes(lambda: clock.monotonic() * 1000)


@pytest.fixture
def host(lanes: MemoryLanes) -> Iterator[ModelHost]:
    host = ModelHost(BATCHSTRING, Echo(), CallPuller(lanes, "worker", HOUR_S), lambda *_: 1)
    host.scheduler.latency.seed(TIMES.sweep(BATCHSTRING, Random(1)))
    host.announce()
    yield host
    host.stop()


def flush_of_the_worker(host: ModelHost, lanes: MemoryLanes) -> str:
    """Why the launch of a single call left."""
    call = Call("call", lane_name({}, 0), "tenant", "a", 1, "api")
    lanes.put(call, target_ms=HOUR_MS, timeout_ms=HOUR_MS, most=1, terms=Terms())
    host.start()
    [[reply]] = eventually(lambda: lanes.replies.get("api"))
    return str(reply.timing["flush"])


def flush_of_the_simulator() -> set[str]:
    return set(simulate(BATCHSTRING, 1, [(0.0, 1)], TIMES).reasons)


def drains(_: Any, now_s: float, lanes: Any, *__: Any, **___: Any) -> Flush | Wait:
    return Flush(lanes[0], 1, 0, "drain") if lanes else Wait(inf)


def test_both_launch_a_single_call_for_the_same_reason_by_the_same_scheduler(
    host: ModelHost, lanes: MemoryLanes
) -> None:
    ours, theirs = workers.device.model_host.Scheduler, workers.simulation.replica.Scheduler
    assert ours is theirs is scheduler.Scheduler
    assert {flush_of_the_worker(host, lanes)} == flush_of_the_simulator() == {"pace"}


def test_another_policy_changes_both(
    host: ModelHost, lanes: MemoryLanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LaunchPolicy, "decide", drains)
    assert {flush_of_the_worker(host, lanes)} == flush_of_the_simulator() == {"drain"}
