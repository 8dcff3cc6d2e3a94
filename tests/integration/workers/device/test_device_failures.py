"""A device that fails takes its worker out of service; what it had goes elsewhere."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import redis

from jobs.models.model import Limits
from jobs.models.probe import Probe as Known
from tests.integration.workers.device.host_bench import MODEL, Bench, Shout, ends
from tests.support.wait import eventually
from workers.device import health as health_module
from workers.device.call_puller import CallPuller
from workers.device.health import DeviceHealth
from workers.engines.protocol import DeviceFailed

EAGER = replace(MODEL, limits=Limits(max_batch=100, window_ms=1))
ECC = "CUDA error: uncorrectable ECC error encountered"


class Sick(Shout):
    """Fails from the n-th launch on, by its device or otherwise; a sample is the first launch."""

    def __init__(self, healthy: int = 0, error: str = ECC, sample: str = "") -> None:
        super().__init__()
        self.healthy, self._error = healthy, error
        self._known = [sample] if sample else []

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        if len(self.launches) >= self.healthy:
            raise RuntimeError(self._error)
        return super().run(batch, params)

    def samples(self) -> Sequence[Any]:
        return self._known


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
    in_flight, other = bench.slices(["a", "b"], ["c"])
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
    eventually(lambda: (look := bench.lanes.look("other/0")).lanes and not look.replicas)
    [lane] = bench.lanes.look("other/0").lanes
    assert (lane.rows, lane.lane) == (1, "alone:{}/0")


@pytest.mark.parametrize(
    ("sick", "alone", "works_first"),
    [
        ({}, True, False),
        ({"healthy": 1000, "sample": "known"}, False, False),
        ({"healthy": 1}, False, True),
        ({"error": "CUDA error: device-side assert triggered"}, False, False),
    ],
    ids=["alone", "where a sample worked", "where work was done", "for a kernel's assertion"],
)
def test_a_launch_is_accused(
    start: Start, sick: dict[str, Any], alone: bool, works_first: bool
) -> None:
    engine = Sick(**sick)
    bench, health = start(engine)
    if "sample" in sick:
        bench.host.warm_up()
        engine.healthy = 0
    bench.start()
    if works_first:
        [first] = bench.slices(["a"])
        assert ends(first) == {0: "A"}
    if alone:
        bench.host.capacity.begin_claim(isolated=True)
    [only] = bench.slices(["b"])
    eventually(lambda: only.finished)
    assert only.suspect
    assert health.suspects_launch
    # Samples aren't work: they don't clear a sick device.
    assert health.has_worked == works_first


def test_a_call_that_ran_alone_is_accused_and_stays_with_the_worker(start: Start) -> None:
    bench, health = start(Sick())
    bench.call("call-1", "a")
    bench.take_by(other := CallPuller(bench.lanes, "worker-2", 60))
    other.put_back(other.token, alone=True)
    bench.start()
    eventually(lambda: health.failure)
    assert health.suspects_launch
    assert not bench.lanes.look("other/0").lanes


@pytest.mark.parametrize("works", [False, True])
def test_a_sample_tells_a_failed_device_from_items_that_fail(start: Start, works: bool) -> None:
    engine = Sick(healthy=1000, error="unspecified", sample="known")
    bench, health = start(engine)
    bench.host.warm_up()
    engine.healthy = 1000 if works else 0
    [only] = bench.slices(["broken"])
    bench.start()
    eventually(lambda: only.finished)
    assert [type(one.output) for one in only.outcomes] == [RuntimeError] * works
    assert ("a sample that worked" in str(health.failure)) == (not works)
    assert (health.failure is None) == works


def test_a_model_is_not_served_on_a_device_that_fails_as_it_warms_up(start: Start) -> None:
    bench, _ = start(Sick(sample="known"))
    with pytest.raises(DeviceFailed):
        bench.host.warm_up()


def test_what_fails_in_every_launch_here_and_works_elsewhere_is_the_devices(start: Start) -> None:
    bench, health = start(Sick(error="unspecified"))
    asked: list[int] = []

    def succeeding_elsewhere(jobs: Collection[UUID]) -> int:
        asked.append(len(jobs))
        return 2

    health.succeeding_elsewhere = succeeding_elsewhere
    bench.start()
    for text in "ab":
        [failed] = bench.slices([text])
        assert isinstance(ends(failed)[0], RuntimeError)
    [last] = bench.slices(["c"])
    eventually(lambda: last.finished)
    assert (last.outcomes, asked) == ([], [3])
    assert "every launch fails here" in str(health.failure)


class Wrong(Shout):
    """Gives a wrong answer to its known input once `is_wrong`, or raises what its device does."""

    is_wrong, asked = False, 0

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def probe(self) -> None:
        self.asked += 1
        if self.is_wrong:
            raise self.error


@pytest.fixture
def ask_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "_ASK_EVERY_S", 0.0)


@pytest.mark.parametrize(
    ("error", "busy"),
    [
        (DeviceFailed("4, not 5"), False),
        (DeviceFailed("4, not 5"), True),
        (RuntimeError(ECC), True),
    ],
)
def test_known_answers_are_asked_for_again_idle_or_between_launches(
    redis_client: "redis.Redis", ask_always: None, error: Exception, busy: bool
) -> None:
    engine = Wrong(error)
    bench = Bench(redis_client, engine, EAGER)
    bench.start()
    for is_wrong in (False, True):
        asked, engine.is_wrong = engine.asked, is_wrong
        if busy:
            bench.slices(["a"])
        eventually(lambda since=asked: engine.asked > since)  # type: ignore[misc]
        assert is_wrong or not bench.health.failure
    eventually(lambda: bench.health.failure)
    bench.stop()
    assert str(bench.health.failure) == str(error)
    assert not bench.health.suspects_launch


def test_recorded_answers_are_asked_for_again(
    redis_client: "redis.Redis", ask_always: None
) -> None:
    known = Known(["a"], ["B"])
    bench = Bench(redis_client, Shout(), replace(EAGER, probe=known.as_json()))
    bench.start()
    eventually(lambda: bench.health.failure)
    bench.stop()
    assert "the answer to input 1 is another one" in str(bench.health.failure)
