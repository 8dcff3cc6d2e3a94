"""Places that tenants with more than their share would give up, and turns of tenants by tokens."""

from tests.unit.workers.generation.made import sequence
from workers.generation.admission.shares import SharedRoom, shared_room
from workers.generation.admission.turns import Turns
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


def test_output_counts_twice_and_the_weight_divides() -> None:
    turns = Turns()
    turns.join("a", 1.0)
    turns.join("b", 2.0)
    turns.serve("a", input=10)
    turns.serve("b", input=10, output=10)
    assert (turns.counter("a"), turns.counter("b")) == (10.0, 15.0)
    assert turns.ordered(["b", "a"]) == ["a", "b"]


def test_a_tenant_that_comes_back_has_saved_nothing_up_and_lost_nothing_it_had() -> None:
    turns = Turns()
    turns.join("busy", 1.0)
    turns.serve("busy", output=50)
    turns.join("back", 1.0)
    assert turns.counter("back") == 100.0
    turns.serve("busy", output=50)
    turns.leave("busy")
    turns.join("busy", 1.0)
    assert turns.ordered(["busy", "back"]) == ["back", "busy"], "it had more"
    turns.leave("busy")
    turns.leave("back")
    turns.join("back", 1.0)
    turns.join("busy", 1.0)
    assert turns.counter("busy") == turns.counter("back") == 0.0, "nobody waited"
