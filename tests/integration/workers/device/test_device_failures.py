"""A device that fails takes its worker out of service; what it had goes elsewhere."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import redis

from jobs.models.model import Limits
from tests.integration.workers.device.host_bench import MODEL, Bench, Shout, ends
from tests.support.wait import eventually
from workers.device.call_puller import CallPuller
from workers.device.health import DeviceHealth
from workers.engines.protocol import DeviceFailed

EAGER = replace(MODEL, limits=Limits(max_batch=100, window_ms=1))
ECC = "CUDA error: uncorrectable ECC error encountered"


class Sick(Shout):
    """Fails from the n-th launch on, by its device or otherwise."""

    def __init__(self, healthy: int = 0, error: Callable[[], Exception] | None = None) -> None:
        super().__init__()
        self.healthy, self.error = healthy, error or (lambda: RuntimeError(ECC))
        self.known: list[str] = []  # samples

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        if len(self.launches) >= self.healthy:
            raise self.error()
        return super().run(batch, params)

    def samples(self) -> Sequence[Any]:
        return self.known


Start = Callable[[Sick], tuple[Bench, DeviceHealth]]


@pytest.fixture
def start(redis_client: "redis.Redis") -> Iterator[Start]:
    """Hosts whose device is watched."""
    benches: list[Bench] = []

    def started(engine: Sick) -> tuple[Bench, DeviceHealth]:
        benches.append(bench := Bench(redis_client, engine, EAGER))
        return bench, bench.health

    yield started
    for bench in benches:
        bench.stop()


def test_items_go_back_without_an_outcome(start: Start) -> None:
    bench, health = start(Sick())
    in_flight, other = bench.slices(["a", "b"], ["c"]).slices
    bench.start()
    for one in (in_flight, other):
        eventually(lambda one=one: one.finished)  # type: ignore[misc]
        assert (one.outcomes, one.released, one.suspect) == ([], True, True)
    assert str(health.failure) == ECC
    assert not health.suspects_launch, "they run alone next, and aren't accused yet"
    assert bench.launches == []


def test_calls_are_there_for_another_worker(start: Start) -> None:
    bench, health = start(Sick())
    bench.call("call-1", "a")
    bench.start()
    eventually(lambda: health.failure)
    look = eventually(lambda: (look := bench.lanes.look("other/0")).lanes and look)
    assert look
    assert [(lane.rows, lane.lane) for lane in look.lanes] == [(1, "alone:{}/0")]
    assert look.replicas == 0


def test_a_launch_that_ran_alone_is_accused_on_a_device_that_never_worked(start: Start) -> None:
    bench, health = start(Sick())
    bench.host.capacity.begin_claim(isolated=True)
    [only] = bench.slices(["a"]).slices
    bench.start()
    eventually(lambda: only.finished)
    assert only.suspect
    assert health.suspects_launch


def test_a_call_that_ran_alone_is_accused_and_stays_with_the_worker(start: Start) -> None:
    bench, health = start(Sick())
    bench.call("call-1", "a")
    bench.take_by(other := CallPuller(bench.lanes, "worker-2", 60))
    other.put_back(other.token, alone=True)
    bench.start()
    eventually(lambda: health.failure)
    assert health.suspects_launch
    assert not bench.lanes.look("other/0").lanes


def test_a_launch_on_a_device_that_ran_a_sample_is_accused(start: Start) -> None:
    engine = Sick(healthy=1000)
    engine.known = ["known"]
    bench, health = start(engine)
    bench.host.warm_up()
    engine.healthy = 0
    [only] = bench.slices(["a"]).slices
    bench.start()
    eventually(lambda: only.finished)
    assert health.suspects_launch
    assert not health.has_worked, "samples aren't work: they don't clear a sick device"


def test_a_launch_on_a_device_that_had_worked_is_suspect(start: Start) -> None:
    bench, health = start(Sick(healthy=1))
    [first] = bench.slices(["a"]).slices
    bench.start()
    assert ends(first) == {0: "A"}
    [second] = bench.slices(["b"]).slices
    eventually(lambda: second.finished)
    assert second.suspect
    assert health.suspects_launch


def test_a_kernels_assertion_accuses_the_launch_on_any_device(start: Start) -> None:
    text = "CUDA error: device-side assert triggered"
    bench, health = start(Sick(error=lambda: RuntimeError(text)))
    [only] = bench.slices(["a"]).slices
    bench.start()
    eventually(lambda: only.finished)
    assert only.suspect
    assert health.suspects_launch


def test_a_sample_that_works_no_more_tells_a_failed_device(start: Start) -> None:
    engine = Sick(healthy=1000, error=lambda: RuntimeError("unspecified"))
    engine.known = ["known"]
    bench, health = start(engine)
    bench.host.warm_up()
    engine.healthy = 0
    [only] = bench.slices(["a", "b"]).slices
    bench.start()
    eventually(lambda: only.finished)
    assert only.outcomes == []
    assert "a sample that worked" in str(health.failure)


def test_items_that_fail_where_a_sample_works_are_their_own_fault(start: Start) -> None:
    engine = Sick(healthy=1000)
    engine.known = ["known"]
    bench, health = start(engine)
    bench.host.warm_up()
    [only] = bench.slices(["broken"]).slices
    bench.start()
    assert isinstance(ends(only)[0], RuntimeError)
    assert health.failure is None


def test_a_model_is_not_served_on_a_device_that_fails_as_it_warms_up(start: Start) -> None:
    engine = Sick()
    engine.known = ["known"]
    bench, _ = start(engine)
    with pytest.raises(DeviceFailed):
        bench.host.warm_up()


def test_what_fails_in_every_launch_here_and_works_elsewhere_is_the_devices(start: Start) -> None:
    bench, health = start(Sick(error=lambda: RuntimeError("unspecified")))
    asked: list[int] = []

    def succeeding_elsewhere(jobs: Collection[UUID]) -> int:
        asked.append(len(jobs))
        return 2

    health.succeeding_elsewhere = succeeding_elsewhere
    bench.start()
    for texts in (["a"], ["b"]):
        [failed] = bench.slices(texts).slices
        assert isinstance(ends(failed)[0], RuntimeError)
    [last] = bench.slices(["c"]).slices
    eventually(lambda: last.finished)
    assert (last.outcomes, asked) == ([], [3])
    assert "every launch fails here" in str(health.failure)
