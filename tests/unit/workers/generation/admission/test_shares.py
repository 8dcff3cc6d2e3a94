"""Places that tenants with more than their share would give up."""

from tests.unit.workers.generation.made import sequence
from workers.generation.admission.shares import SharedRoom, shared_room
from workers.generation.requests import Sequenced


def calls(tenant: str, count: int, weight: float = 1.0) -> list[Sequenced]:
    return [sequence(tenant=tenant, weight=weight) for _ in range(count)]


def test_tenants_above_their_share_give_up_places_and_others_nothing() -> None:
    assert shared_room(calls("flood", 16), []) == SharedRoom(8, ("flood",))
    running = [*calls("a", 1), *calls("b", 1), *calls("c", 1)]
    assert shared_room(running, []) == SharedRoom(0, ())
    assert shared_room([], []) == SharedRoom(0, ())
    items = [sequence(call=False, tenant="job") for _ in range(16)]
    assert shared_room(items, []) == SharedRoom(0, ())


def test_shares_go_by_weight() -> None:
    running = [*calls("paid", 12, weight=3.0), *calls("flood", 4)]
    assert shared_room(running, []) == SharedRoom(2, ("paid",))
    running = [*calls("paid", 12, weight=3.0), *calls("flood", 8)]
    assert shared_room(running, []) == SharedRoom(4, ("flood",))


def test_calls_that_wait_already_get_places_first() -> None:
    waiting = [*calls("light", 3), *calls("flood", 40)]
    assert shared_room(calls("flood", 16), waiting) == SharedRoom(5, ("flood",))
