"""Order of sequences that wait, beside a search through all of them; lengths that are expected;
places that tenants with more than their share would give up, and turns by tokens."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.generation.made import sequence
from workers.generation.admission.output_lengths import OutputLengths
from workers.generation.admission.shares import SharedRoom, shared_room
from workers.generation.admission.turns import Turns
from workers.generation.admission.waiting import Waiting
from workers.generation.requests import Sequenced

TENANTS = "abc"
TENANT = st.sampled_from(TENANTS)
DEADLINE = st.sampled_from([1.0, 2.0, float("inf")])
DONE = st.one_of(
    st.tuples(st.just("put"), TENANT, DEADLINE, st.integers(0, 3)),
    st.tuples(st.just("serve"), TENANT, st.integers(1, 40)),
    st.tuples(st.just("admit")),
    *(st.tuples(st.just(name), st.integers(0, 30)) for name in ("cancel", "end", "preempt")),
)


class Searched:
    """Turns and lanes, in which each operation looks at all sequences."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.waiting = Waiting(self.turns)
        self.naive: list[Sequenced] = []
        self.running: list[Sequenced] = []

    def do(self, done: tuple[Any, ...]) -> None:
        match done:
            case "put", tenant, deadline_s, place:
                more = {"weight": float(1 + TENANTS.index(tenant)), "place": (place,)}
                self._put(sequence(tenant=tenant, deadline_s=deadline_s, **more), joins=True)
            case "serve", tenant, tokens if tenant in {s.request.tenant for s in self.running}:
                self.turns.serve(tenant, output=tokens)
            case ("admit",) if self.naive:
                found = self.waiting.first()
                assert found is not None
                self._take(found)
                self.running.append(found)
            case "cancel", index if self.naive:
                found = self.naive[index % len(self.naive)]
                self._take(found)
                self.turns.leave(found.request.tenant)
            case "end", index if self.running:
                found = self.running.pop(index % len(self.running))
                self.turns.leave(found.request.tenant)
            case "preempt", index if self.running:
                self._put(self.running.pop(index % len(self.running)), joins=False)

    def _put(self, one: Sequenced, *, joins: bool) -> None:
        if joins:
            self.turns.join(one.request.tenant, one.request.weight)
        self.waiting.put(one)
        self.naive.append(one)

    def _take(self, one: Sequenced) -> None:
        self.waiting.remove(one)
        self.naive.remove(one)

    def check(self) -> None:
        assert list(self.waiting) == self.naive
        assert len(self.waiting) == len(self.naive)
        first = self.waiting.first()
        if not self.naive:
            assert first is None
            return
        its = first.request
        counters = [self.turns.counter(one.request.tenant) for one in self.naive]
        assert self.turns.counter(its.tenant) == min(counters)
        same = [one for one in self.naive if one.request.tenant == its.tenant]
        assert first is min(same, key=lambda one: (one.request.deadline_s, one.request.place))


@given(st.lists(DONE, max_size=40))
def test_the_first_is_the_most_urgent_of_the_tenant_with_the_least_tokens(done: list[Any]) -> None:
    searched = Searched()
    for one in done:
        searched.do(one)
        searched.check()


def test_a_quantile_of_the_latest_lengths_is_expected_within_what_is_allowed() -> None:
    lengths = OutputLengths()
    assert lengths.expected(600, 8000) == 900, "a first one that goes on does so for a while"
    for tokens in range(1, 101):
        lengths.add(tokens)
    assert 75 <= lengths.expected(0, 1000) <= 85
    assert 90 <= lengths.expected(80, 1000) <= 100
    assert lengths.expected(200, 1000) == 300
    lengths = OutputLengths()
    assert lengths.expected(0, 20) == 20
    lengths.add(500)
    assert lengths.expected(0, 20) == 20


def calls(tenant: str, count: int, weight: float = 1.0) -> list[Sequenced]:
    return [sequence(tenant=tenant, weight=weight) for _ in range(count)]


def test_tenants_above_their_share_give_up_places_by_weight_first_to_calls_that_wait() -> None:
    assert shared_room(calls("flood", 16), []) == SharedRoom(8, ("flood",))
    running = [*calls("a", 1), *calls("b", 1), *calls("c", 1)]
    assert shared_room(running, []) == SharedRoom(0, ())
    assert shared_room([], []) == SharedRoom(0, ())
    items = [sequence(call=False, tenant="job") for _ in range(16)]
    assert shared_room(items, []) == SharedRoom(0, ())
    running = [*calls("paid", 12, weight=3.0), *calls("flood", 4)]
    assert shared_room(running, []) == SharedRoom(2, ("paid",))
    running = [*calls("paid", 12, weight=3.0), *calls("flood", 8)]
    assert shared_room(running, []) == SharedRoom(4, ("flood",))
    waiting = [*calls("light", 3), *calls("flood", 40)]
    assert shared_room(calls("flood", 16), waiting) == SharedRoom(5, ("flood",))


def test_tokens_of_a_tenant_are_counted_by_weight_and_who_comes_back_has_saved_nothing_up() -> None:
    turns = Turns()
    turns.join("a", 1.0)
    turns.join("b", 2.0)
    turns.serve("a", input=10)
    turns.serve("b", input=10, output=10)
    assert (turns.counter("a"), turns.counter("b")) == (10.0, 15.0)
    assert turns.ordered(["b", "a"]) == ["a", "b"]
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
