"""Who is let in, and served, where one tenant asks for far more than there is."""

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from jobs.calls.lanes import Rejection, Terms
from jobs.calls.messages import Call
from tests.integration.jobs.calls.made import Lanes

_numbers = count()
FULL = Terms(one_ms=100, full_rows=10, full_ms=100, allowed_ms=300)  # three launches in time
LIGHT = [f"light {n}" for n in range(9)]


def ask(
    lanes: Lanes, tenant: str, weight: float = 1.0, lane: str = "{}/64", most: int = 10_000
) -> Rejection | None:
    call = Call(f"{next(_numbers)}", lane, tenant, None, 1, "api-1", weight)
    return lanes.refused(call, FULL, most=most)


def flood(lanes: Lanes, tenant: str = "flood", weight: float = 1.0, **where: object) -> int:
    """Until it is refused: how many were let in."""
    let_in = 0
    while ask(lanes, tenant, weight, **where) is None:  # type: ignore[arg-type]
        let_in += 1
    return let_in


def launches(lanes: Lanes, rows: int = 10) -> Iterator[Counter[str]]:
    while taken := lanes.take(rows=rows, took_ms=0.0):
        yield Counter(call.tenant for call in taken)


def test_alone_a_tenant_has_all_the_room_that_there_is(launched: Lanes) -> None:
    assert flood(launched) == 30


def test_a_flood_keeps_nobody_else_out_and_nobody_waiting(launched: Lanes) -> None:
    flood(launched)
    assert [ask(launched, tenant) for tenant in LIGHT] == [None] * 9
    first = next(launches(launched))
    assert {tenant: first[tenant] for tenant in LIGHT} == dict.fromkeys(LIGHT, 1)


def test_round_after_round_the_light_are_let_in_and_served_in_their_turn(launched: Lanes) -> None:
    for _ in range(10):
        flood(launched)
        for _ in range(2):
            assert [ask(launched, tenant) for tenant in LIGHT] == [None] * 9
        assert flood(launched) == 0
        served = sum((next(launches(launched)) for _ in range(2)), Counter[str]())
        assert {tenant: served[tenant] for tenant in LIGHT} == dict.fromkeys(LIGHT, 2)


def test_a_full_queue_is_full_for_who_has_its_share_of_it(launched: Lanes) -> None:
    for n in range(20):
        assert ask(launched, "flood", most=20) is None, n
    full = ask(launched, "flood", most=20)
    assert full
    assert full.why == "overloaded"
    assert [ask(launched, "other", most=20) for _ in range(10)] == [None] * 10
    full = ask(launched, "other", most=20)
    assert full
    assert full.why == "overloaded"


def test_a_flood_in_one_lane_keeps_nobody_out_of_another(launched: Lanes) -> None:
    flood(launched)
    assert [ask(launched, tenant, lane="{}/16") for tenant in LIGHT] == [None] * 9


def test_shares_go_by_weight_where_all_want_more(launched: Lanes) -> None:
    weights = {"one": 1.0, "two": 2.0, "four": 4.0}
    served: Counter[str] = Counter()
    for tenant, weight in weights.items():
        for _ in range(100):
            call = Call(f"{next(_numbers)}", "{}/64", tenant, None, 1, "api-1", weight)
            assert launched.refused(call, most=1000) is None
    for _ in range(17):
        served += Counter(call.tenant for call in launched.take(rows=10))
    total = sum(served.values())
    for tenant, weight in weights.items():
        assert served[tenant] / total == pytest.approx(weight / 7, rel=0.05)


def test_room_goes_by_weight_too(launched: Lanes) -> None:
    assert flood(launched, "heavy", 4.0) == 30
    assert flood(launched, "light", 1.0) == pytest.approx(30 / 5, abs=1)


def test_what_a_tenant_has_waiting_is_known_however_it_leaves(launched: Lanes) -> None:
    calls = [Call(f"{next(_numbers)}", "{}/64", "flood", None, 1, "api-1", 3.0) for _ in range(30)]
    for call in calls:
        assert launched.refused(call, FULL) is None
    launched.lanes.drop(calls[-1])
    launched.take(rows=5, worker="worker-2", took_ms=0.0, token=1)
    launched.lanes.abort("worker-2", 1)
    launched.take(rows=5, worker="worker-2", took_ms=0.0)
    launched.lanes.announce("worker-2", 0)
    launched.lanes.recover()  # into a lane of their own
    assert sum(launched.waiting().values()) == 29
    while launched.waiting():
        for lane in launched.waiting():
            launched.take(lane=lane, took_ms=0.0)
    assert flood(launched, "flood") == 30
    assert ask(launched, "other") is None
