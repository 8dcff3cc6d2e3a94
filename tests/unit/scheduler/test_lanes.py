"""The items that wait in a worker; and decisions and lanes together, on random entries."""

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.calls.lanes import ALONE, Ticket, bucket_of, lane_name, lane_parts
from jobs.calls.memory import MemoryLanes
from jobs.calls.messages import Call
from jobs.registry import TOKEN_BUCKETS, Limits
from tests.unit.scheduler.measured import measured
from workers.scheduler.entries import Entry
from workers.scheduler.lanes import ItemLanes
from workers.scheduler.policy import Flush, LaneView, PoolView, decide, fill_rows


def entry(
    seq: int, lane: str = "{}/64", size: int = 1, owner: object = "job", arrived_s: float = 0.0
) -> Entry:
    return Entry(owner, seq, lane, lane_parts(lane)[1], size, None, arrived_s)


def lanes_with(*entries: Entry) -> ItemLanes:
    lanes = ItemLanes()
    lanes.put(entries)
    return lanes


def seqs(entries: list[Entry]) -> list[int]:
    return [entry.seq for entry in entries]


def test_the_oldest_items_of_a_lane_are_taken_first() -> None:
    lanes = lanes_with(*map(entry, range(5)))
    assert seqs(lanes.take("{}/64", 3)) == [0, 1, 2]
    assert seqs(lanes.take("{}/64", 3)) == [3, 4]
    assert len(lanes) == 0


def test_a_lane_is_gone_once_it_is_empty() -> None:
    lanes = lanes_with(entry(0))
    lanes.take("{}/64", 1)
    assert lanes.waiting() == {}
    assert lanes.take("{}/64", 1) == []


def test_taking_stops_before_the_size_budget_is_exceeded() -> None:
    lanes = lanes_with(*(entry(n, size=30) for n in range(5)))
    assert seqs(lanes.take("{}/64", 5, max_units=90)) == [0, 1, 2]


def test_an_item_larger_than_the_size_budget_goes_alone() -> None:
    lanes = lanes_with(entry(0, size=100), entry(1))
    assert seqs(lanes.take("{}/64", 5, max_units=10)) == [0]


def test_waiting_tells_how_many_and_since_when() -> None:
    lanes = lanes_with(entry(0, arrived_s=3.0), entry(1, arrived_s=4.0), entry(2, "{}/16"))
    assert lanes.waiting() == {"{}/64": (2, 3.0), "{}/16": (1, 0.0)}


def test_items_that_ride_with_calls_come_from_their_lane_first_and_then_from_shorter_ones() -> None:
    lanes = lanes_with(entry(0, "{}/16"), entry(1, "{}/64"), entry(2, "{}/32"), entry(3, "{}/64"))
    assert seqs(lanes.take_fill("{}/64", 3)) == [1, 3, 0]
    assert seqs(lanes.take_fill("{}/64", 3)) == [2]


def test_no_longer_item_and_no_other_batch_key_rides_with_calls() -> None:
    other = lane_name({"normalize": False}, 16)
    lanes = lanes_with(entry(0, "{}/128"), entry(1, other))
    assert lanes.take_fill("{}/64", 10) == []
    assert len(lanes) == 2


def test_dropping_an_owner_leaves_the_items_of_others_in_their_order() -> None:
    mine, other = object(), object()
    lanes = lanes_with(
        entry(0, owner=other),
        entry(1, owner=mine),
        entry(2, owner=other),
        entry(3, "{}/16", owner=mine),
    )
    assert lanes.drop(mine) == 2
    assert lanes.waiting().keys() == {"{}/64"}
    assert seqs(lanes.take("{}/64", 5)) == [0, 2]


@pytest.mark.parametrize("params", [{}, {"normalize": True}, {"b": 1, "a": ["/", {"x": None}]}])
def test_a_lane_name_tells_its_parameters_and_its_bucket(params: dict[str, object]) -> None:
    assert lane_parts(lane_name(params, 64)) == (params, 64)


def test_a_lane_whose_calls_run_alone_has_the_same_parts() -> None:
    assert lane_parts(ALONE + lane_name({"a": "x:/"}, 64)) == ({"a": "x:/"}, 64)


def test_the_same_parameters_in_another_order_are_the_same_lane() -> None:
    assert lane_name({"a": 1, "b": 2}, 0) == lane_name({"b": 2, "a": 1}, 0)


# -- decisions and lanes together

PARAMS = ({}, {"normalize": True}, {"normalize": False})


@dataclass(frozen=True)
class Thing:
    """A call or an item that is to be launched."""

    is_call: bool
    params: int
    size: int

    @property
    def lane(self) -> str:
        return lane_name(PARAMS[self.params], bucket_of(self.size, TOKEN_BUCKETS))


@dataclass(frozen=True)
class Launched:
    """What one decision took: seqs of calls and of items; the bucket that it decided for."""

    calls: list[int]
    items: list[int]
    bucket: int


things = st.lists(st.builds(Thing, st.booleans(), st.integers(0, 2), st.integers(1, 256)))
limits = st.builds(
    Limits, st.integers(1, 12), st.sampled_from([0, 100, 256, 512]), st.just(1), st.integers(0, 50)
)
devices = st.builds(measured, st.sampled_from([0.0, 0.01, 0.1]), st.sampled_from([0.0, 1e-5, 1e-3]))


class Replica:
    """Decides and takes as a worker does, on a clock that jumps to where the decision waits for."""

    def __init__(self, waiting: list[Thing], limits: Limits, latency: object) -> None:
        self.now_s = 1.0
        self.limits, self.latency = limits, latency
        self.central = MemoryLanes(lambda: self.now_s * 1000)
        self.central.announce("me", inf)
        self.items = ItemLanes()
        for seq, thing in enumerate(waiting):
            if thing.is_call:
                call = Call(str(seq), thing.lane, "tenant", None, thing.size, "api")
                self.central.put(call, target_ms=250, timeout_ms=10**9, most=10**9)
            else:
                self.items.put([entry(seq, thing.lane, thing.size, arrived_s=self.now_s)])

    def launches(self) -> list[Launched]:
        found = []
        while True:
            look = self.central.look()
            calls = {lane.lane: (lane.rows, lane.due_ms / 1000) for lane in look.lanes}
            items = self.items.waiting()
            views = [
                LaneView(
                    lane,
                    lane_parts(lane)[1],
                    *calls.get(lane, (0, inf)),
                    *items.get(lane, (0, inf)),
                )
                for lane in calls.keys() | items.keys()
            ]
            pool = PoolView(look.last_launch_ms / 1000, look.last_took_ms / 1000, look.replicas)
            decision = decide(self.now_s, views, pool, self.latency, self.limits)
            if isinstance(decision, Flush):
                found.append(self._take(decision, look.last_launch_ms))
            elif decision.until_s == inf:
                return found
            else:
                assert decision.until_s > self.now_s
                self.now_s = decision.until_s

    def _take(self, flush: Flush, last_launch_ms: float) -> Launched:
        view = flush.view
        if not view.calls:
            items = self.items.take(view.lane, flush.rows, self.limits.max_tokens)
            return Launched([], seqs(items), view.bucket)
        calls = self.central.take(Ticket(view.lane, flush.rows, last_launch_ms, 50.0, "me", inf))
        slack_s = view.calls_due_s - self.now_s
        rows = fill_rows(len(calls), slack_s, view.bucket, self.latency, self.limits)
        items = self.items.take_fill(view.lane, rows)
        return Launched([int(call.id) for call in calls], seqs(items), view.bucket)


@given(things, limits, devices)
def test_every_entry_is_launched_once_with_its_own_kind_and_within_the_limits(
    waiting: list[Thing], limits: Limits, latency: object
) -> None:
    launches = Replica(waiting, limits, latency).launches()
    launched = sorted(seq for launch in launches for seq in [*launch.calls, *launch.items])
    assert launched == list(range(len(waiting)))
    for launch in launches:
        taken = [waiting[seq] for seq in [*launch.calls, *launch.items]]
        assert len({thing.params for thing in taken}) == 1
        assert 1 <= len(taken) <= limits.max_batch
        assert all(thing.size <= launch.bucket for thing in taken)
        if limits.max_tokens and len(taken) > 1:
            assert len(taken) * launch.bucket <= limits.max_tokens
        assert all(waiting[seq].is_call for seq in launch.calls)
