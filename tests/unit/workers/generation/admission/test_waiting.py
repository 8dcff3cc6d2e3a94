"""Order of sequences that wait, beside a search through all of them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.generation.made import sequence
from workers.generation.admission.turns import Turns
from workers.generation.admission.waiting import Waiting
from workers.generation.requests import Sequenced

TENANTS = "abc"
DONE = st.one_of(
    st.tuples(
        st.just("put"),
        st.sampled_from(TENANTS),
        st.sampled_from([1.0, 2.0, float("inf")]),
        st.integers(0, 3),
    ),
    st.tuples(st.just("serve"), st.sampled_from(TENANTS), st.integers(1, 40)),
    st.tuples(st.just("admit")),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("end"), st.integers(0, 30)),
    st.tuples(st.just("preempt"), st.integers(0, 30)),
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
        assert first is not None
        its = first.request
        counters = [self.turns.counter(one.request.tenant) for one in self.naive]
        assert self.turns.counter(its.tenant) == min(counters)
        same = [one for one in self.naive if one.request.tenant == its.tenant]
        assert first is min(same, key=lambda one: (one.request.deadline_s, one.request.place))


@given(st.lists(DONE, max_size=40))
def test_the_first_is_the_most_urgent_of_the_tenant_with_the_least_tokens(
    history: list[tuple[Any, ...]],
) -> None:
    searched = Searched()
    for done in history:
        searched.do(done)
        searched.check()
