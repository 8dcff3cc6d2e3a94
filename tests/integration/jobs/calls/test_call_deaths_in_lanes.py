"""Calls of workers that died, and those that nobody wants any more."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count

from jobs.calls.lanes import ALONE, WORKER_LOST
from jobs.calls.messages import Call
from tests.integration.jobs.calls.made import Lanes, sized
from tests.support.wait import eventually

LONE = ALONE + "{}/64"


def died(lanes: Lanes, worker: str = "worker-2") -> int:
    """A worker dies; returns how many calls of its are recovered."""
    lanes.lanes.announce(worker, 0)
    return lanes.lanes.recover()


def test_a_call_of_a_dead_worker_waits_alone_and_at_once_for_another(lanes: Lanes) -> None:
    lanes.put("a")
    [before] = lanes.take(worker="worker-2")
    assert died(lanes) == 1
    look = lanes.look()
    [waiting] = look.lanes
    assert (waiting.lane, waiting.rows) == (LONE, 1)
    assert waiting.due_ms <= look.now_ms
    [after] = lanes.take(lane=LONE)
    assert after == replace(before, lane=LONE)
    assert lanes.answers() == []


def test_its_second_death_ends_a_call_as_worker_lost(lanes: Lanes) -> None:
    lanes.put("a")
    for lane in ("{}/64", LONE):
        assert lanes.take_ids(lane=lane, worker="worker-2") == ["a"]
        assert died(lanes) == 1
    assert lanes.answers() == [("a", None, list(WORKER_LOST))]
    assert lanes.waiting() == {}
    assert lanes.lanes.recover() == 0


def test_the_calls_of_a_launch_that_died_are_put_back_each_with_its_size(lanes: Lanes) -> None:
    sized(lanes, "a", 30, 12)
    lanes.put("waits", lane="{}/16")
    lanes.take(worker="worker-2")
    assert died(lanes) == 2
    assert {(lane.lane, lane.rows, lane.units) for lane in lanes.look().lanes} == {
        (LONE, 2, 42),
        ("{}/16", 1, 3),
    }
    lanes.take(lane=LONE, rows=1)
    assert [lane.units for lane in lanes.look().lanes if lane.lane == LONE] in ([30], [12])


def test_what_a_living_worker_has_in_hand_is_left_to_it_even_while_it_drains(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.take()
    lanes.put("b")
    lanes.take(worker="unknown")  # it lives, though the lanes forgot it
    assert lanes.lanes.recover() == 0
    lanes.lanes.announce("worker-1", 60, ready=False)
    assert lanes.look().replicas == 0
    assert lanes.lanes.recover() == 0
    assert died(lanes, "worker-1") == 1


def test_a_worker_that_falls_silent_loses_what_it_has_in_hand(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.take(rows=1, worker="worker-2", lease_ms=50.0)
    eventually(lambda: lanes.lanes.recover() == 1)


def test_what_its_taker_never_heard_of_is_put_back_where_it_was(lanes: Lanes) -> None:
    for id in ("kept", "lost", "other"):
        lanes.put(id)
    for hand, worker in ((1, "worker-1"), (2, "worker-1"), (2, "worker-2")):
        assert len(lanes.take(rows=1, worker=worker, token=hand)) == 1
    lanes.lanes.abort("worker-1", 2)
    lanes.lanes.abort("worker-1", 2)
    assert [(lane.lane, lane.rows, lane.units) for lane in lanes.look().lanes] == [("{}/64", 1, 3)]
    assert lanes.take_ids() == ["lost"]


def test_a_death_from_outside_puts_all_calls_of_a_worker_back_where_they_were(lanes: Lanes) -> None:
    for id in ("one", "two", "other"):
        lanes.put(id)
    for hand, worker in ((1, "worker-1"), (2, "worker-1"), (2, "worker-11")):
        assert len(lanes.take(rows=1, worker=worker, token=hand)) == 1
    for _ in range(2):
        lanes.lanes.abort("worker-1")
        assert lanes.waiting() == {"{}/64": 2}
    assert lanes.take_ids(worker="worker-1") == ["one", "two"]


def test_two_keepers_put_a_call_back_once(lanes: Lanes) -> None:
    for n in range(50):
        lanes.put(f"call-{n}")
    lanes.take(worker="worker-2")
    lanes.lanes.announce("worker-2", 0)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(lanes.lanes.recover) for _ in range(4)]
    assert sorted(one.result() for one in found) == [0, 0, 0, 50]
    assert lanes.waiting() == {LONE: 50}


def test_a_call_that_was_answered_or_whose_client_left_is_not_recovered(lanes: Lanes) -> None:
    calls = {id: lanes.put(id) for id in ("answered", "left", "not-yet", "leaves")}
    lanes.take(worker="worker-2")
    lanes.answer("answered")
    lanes.lanes.drop(calls["left"])
    assert died(lanes) == 2
    lanes.lanes.drop(calls["leaves"])  # while it waits alone
    assert lanes.take_ids(lane=LONE) == ["not-yet"]
    assert lanes.waiting() == {}


def test_a_call_past_its_deadline_is_forgotten_with_its_worker(lanes: Lanes) -> None:
    taken: list[Call] = []
    for n in count():  # until one is taken in time
        lanes.put(f"{n}", timeout_ms=50)
        if taken := lanes.take(worker="worker-2"):
            break
    lanes.passed(taken[0].deadline_ms)
    assert died(lanes) == 0
    assert (lanes.waiting(), lanes.answers()) == ({}, [])


def test_a_worker_that_was_only_slow_answers_before_the_second_delivery(lanes: Lanes) -> None:
    lanes.put("a")
    lanes.take(worker="worker-2")
    died(lanes)
    lanes.answer("a")
    assert lanes.take_ids(lane=LONE) == []
    assert lanes.answers() == [("a", "done", None)]
    assert lanes.lanes.recover() == 0


def test_a_call_in_hand_takes_no_room_and_takes_some_when_it_is_put_back(lanes: Lanes) -> None:
    lanes.put("a", most=1)
    lanes.take(worker="worker-2")
    lanes.put("b", most=1)
    died(lanes)
    assert lanes.refusal(Call("c", "{}/64", "tenant", 1, 1, "api-1"), most=2) == "overloaded"
