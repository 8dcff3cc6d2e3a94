"""Scheduler and lanes together, on a clock that jumps to where a decision waits for."""

from dataclasses import dataclass, replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.calls.lanes import Terms, bucket_of, lane_name
from jobs.calls.memory import MemoryLanes
from jobs.calls.messages import Call
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Limits, Model
from tests.unit.workers.scheduler.measured import measured
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.latency import LatencyModel
from workers.scheduler.policy import Wait
from workers.scheduler.scheduler import FLOOR, Scheduler
from workers.scheduler.snapshot import Waiting

PARAMS = ({}, {"normalize": True}, {"normalize": False})
BUCKETS = SAMPLES.resolve("minilm").size_buckets
FIXED = Model("fixed", "1", "function", target_ms=200, limits=Limits(max_batch=100))


@dataclass(frozen=True)
class Thing:
    """A call or an item that is to be launched."""

    is_call: bool
    params: int = 0
    size: int = 1

    def lane(self, model: Model) -> str:
        return lane_name(PARAMS[self.params], bucket_of(self.size, model.buckets))


class Replica:
    """Decides and takes as a worker does. Each launch ends at once."""

    def __init__(self, model: Model, latency: LatencyModel) -> None:
        self.now_s = 1.0
        self.model = model
        self.central = MemoryLanes(lambda: self.now_s * 1000)
        self.central.announce("me", inf)
        self.scheduler = Scheduler(model)
        self.scheduler.latency = self.scheduler.policy.latency = latency
        self._number = 0

    def add(self, *things: Thing) -> None:
        for thing in things:
            lane = thing.lane(self.model)
            if thing.is_call:
                call = Call(str(self._number), lane, "tenant", None, thing.size, "api")
                bounds = {"target_ms": self.model.target_ms, "timeout_ms": 10**9, "most": 10**9}
                assert self.central.put(call, **bounds, terms=Terms()) is None
            else:
                self.scheduler.items.put([_entry(self._number, lane, thing.size, self.now_s)])
            self._number += 1

    def next(self) -> Launch | Wait:
        """What the one slot does now; a decision that came to nothing is made again."""
        while True:
            look, most = self.central.look("me/0"), self.model.limits.in_flight
            waiting = Waiting.from_look(look, "me/0", most, 0.0)
            decision = self.scheduler.decide(self.now_s, waiting)
            if isinstance(decision, Wait):
                return decision
            calls = []
            if decision.view.calls or self.scheduler.tells_pool(self.now_s, waiting):
                ticket = self.scheduler.ticket(self.now_s, decision, waiting, "me", "me/0", inf)
                taken = self.central.take(ticket) or []
                calls = [_entry(int(call.id), call.lane, call.size, self.now_s) for call in taken]
            due_s = decision.view.calls_due_s
            if launch := self.scheduler.close(self.now_s, decision, calls, due_s):
                return launch

    def launch(self) -> Launch:
        launch = self.next()
        assert isinstance(launch, Launch), launch
        return launch

    def run(self, launch: Launch) -> None:
        launch.engine_s = launch.predicted_s
        self.now_s += launch.engine_s
        self.scheduler.ended(self.now_s, launch)

    def launches(self) -> list[Launch]:
        """All until nothing waits."""
        found = []
        while True:
            step = self.next()
            if isinstance(step, Launch):
                found.append(step)
                self.run(step)
            elif step.until_s == inf:
                return found
            else:
                assert step.until_s > self.now_s
                self.now_s = step.until_s


def _entry(seq: int, lane: str, size: int, now_s: float) -> Entry:
    return Entry("job", seq, lane, int(lane.rpartition("/")[2]), size, None, now_s)


things = st.lists(st.builds(Thing, st.booleans(), st.integers(0, 2), st.integers(1, 256)))
limits = st.builds(
    Limits,
    max_batch=st.integers(1, 12),
    max_tokens=st.sampled_from([0, 100, 256, 512]),
    in_flight=st.integers(1, 3),
    window_ms=st.integers(0, 50),
)
devices = st.builds(measured, st.sampled_from([0.0, 0.01, 0.1]), st.sampled_from([0.0, 1e-5, 1e-3]))


@given(things, limits, devices)
def test_every_entry_is_launched_once_with_its_own_kind_and_within_the_limits(
    waiting: list[Thing], limits: Limits, latency: LatencyModel
) -> None:
    replica = Replica(replace(SAMPLES.resolve("minilm"), limits=limits), latency)
    replica.add(*waiting)
    launches = replica.launches()
    assert sorted(e.seq for launch in launches for e in launch.entries) == list(range(len(waiting)))
    for launch in launches:
        taken = [waiting[entry.seq] for entry in launch.entries]
        assert all(PARAMS[thing.params] == launch.params for thing in taken)
        assert 1 <= len(taken) <= limits.max_batch
        assert all(waiting[entry.seq].is_call for entry in launch.calls)
        if limits.max_tokens and len(taken) > 1:
            assert launch.padded_units <= limits.max_tokens


@pytest.mark.parametrize("bucket", BUCKETS)
def test_items_never_make_a_launch_of_calls_longer_than_its_lane(bucket: int) -> None:
    padded = replace(SAMPLES.resolve("minilm"), options={"layout": "padded"})
    replica = Replica(padded, measured(0.1, 0))
    replica.add(Thing(True, size=bucket), *(Thing(False, size=size) for size in BUCKETS))
    first = replica.launch()
    assert [entry.size for entry in first.calls] == [bucket]
    assert first.items
    assert all(entry.size <= bucket for entry in first.items)


def test_items_keep_launches_of_calls_within_the_size_budget_and_lengthen_no_shorter_ones() -> None:
    model = replace(FIXED, limits=Limits(max_batch=100, max_tokens=100))
    replica = Replica(model, measured(0.1, 0))
    replica.add(Thing(True, size=10), *(Thing(False, size=40) for _ in range(5)))
    assert [entry.size for entry in replica.launch().entries] == [10, 40, 40]
    replica = Replica(FIXED, measured(0.0, 0.001, by_size=True))
    replica.add(Thing(True, size=10), Thing(False, size=1000))
    first = replica.launch()
    assert (len(first.calls), len(first.items)) == (1, 0)


def busy(replica: Replica, calls: int, launches: int) -> float:
    """The share of device time that items get while so many calls come before every launch."""
    items_s = total_s = 0.0
    for _ in range(launches):
        replica.add(*[Thing(True)] * calls)
        step = replica.launch()
        replica.run(step)
        total_s += step.engine_s
        items_s += step.engine_s * len(step.items) / len(step.entries)
    return items_s / total_s


def test_items_get_their_share_of_a_busy_device_but_none_where_they_ride_with_calls() -> None:
    replica = Replica(FIXED, measured(0.1, 0))
    replica.add(*[Thing(False)] * 5000)
    busy(replica, 100, 50)
    assert busy(replica, 100, 100) == pytest.approx(FLOOR, rel=0.3)
    replica = Replica(FIXED, measured(0.1, 0))
    replica.add(*[Thing(False)] * 3000)
    for _ in range(30):
        replica.add(*[Thing(True)] * 10)
        step = replica.launch()
        assert (len(step.calls), len(step.items)) == (10, 90)
        replica.run(step)


def test_a_profile_tells_what_the_launches_of_each_bucket_take() -> None:
    replica = Replica(SAMPLES.resolve("minilm"), measured(0.01, 0.0001, by_size=True))
    times = replica.scheduler.profile(1.5).buckets
    assert set(times) == set(BUCKETS)
    assert (times[64].full_rows, times[64].full_ms) == (8, pytest.approx(10 + 51.2, rel=0.02))
    assert times[64].one_ms == pytest.approx(16.4, rel=0.02)
    terms = replica.scheduler.profile().terms(64, 2, 200)
    assert terms.launch_ms(7, 7) == pytest.approx(times[64].full_ms)
