"""Sequences that wait for their adapter: loads go beside everything, and slots change in turn."""

from typing import Any, cast

from jobs.models.adapters import Adapter
from tests.unit.workers.generation.made import scheduler, sequence
from workers.engines.generator import AdapterLoaded
from workers.engines.protocol import Permanent
from workers.generation.admission.adapters import AdapterGate
from workers.generation.requests import Sequenced, cache_salt

LATER_S = 10.0


class Gate:
    """Gate, its scheduler, and its generator of one slot, which notes what it is to load."""

    def __init__(self) -> None:
        self.adapter_slots, self.asked = 1, list[tuple[int, str]]()
        self.scheduler = scheduler()
        self.gate = AdapterGate(cast(Any, self), self.scheduler)

    def load_adapter(self, slot: int, adapter: Adapter) -> None:
        self.asked.append((slot, adapter.name))

    def put(self, name: str, now_s: float, *, call: bool = True) -> Sequenced:
        adapter = Adapter(name, f"/{name}", "a" * 64) if name else None
        one = sequence(call=call, adapter=adapter)
        self.gate.put([one], now_s)
        return one

    def load(self, now_s: float) -> list[tuple[int, str]]:
        self.asked = []
        self.gate.load(now_s, self.take_out)
        return self.asked

    def take_out(self, one: Sequenced) -> None:
        if not self.gate.leave(one):
            self.scheduler.remove(one)

    def loaded(self, now_s: float) -> None:
        assert not list(self.gate.loaded(AdapterLoaded(0, 0.01), now_s))

    @property
    def queued(self) -> list[Sequenced]:
        return [*self.scheduler.calls, *self.scheduler.items]


def test_a_sequence_waits_for_its_adapter_holds_up_no_other_and_is_forgotten_if_it_leaves() -> None:
    its = Gate()
    one, other = its.put("a", 0.0), its.put("", 0.0)
    assert its.queued == [other]
    assert its.load(0.0) == [(0, "a")]
    assert its.load(0.0) == []
    its.loaded(0.1)
    assert its.queued == [other, one]
    assert its.put("a", 0.2) in its.queued
    its = Gate()
    one = its.put("a", 0.0)
    assert its.gate.leave(one)
    assert its.load(0.0) == []
    assert not its.gate.waits


def test_a_broken_adapter_fails_those_that_wait_for_it_and_leaves_its_slot() -> None:
    its = Gate()
    one = its.put("a", 0.0)
    its.load(0.0)
    failed = its.gate.loaded(AdapterLoaded(0, 0.0, Permanent("broken")), 0.1)
    assert list(failed) == [one.request]
    its.take_out(one)
    its.put("b", 0.2)
    assert its.load(0.2) == [(0, "b")]


def test_a_full_slot_ends_what_it_has_while_new_ones_wait() -> None:
    its = Gate()
    first = its.put("a", 0.0)
    its.load(0.0)
    its.loaded(0.0)
    second = its.put("b", LATER_S)
    assert its.load(LATER_S) == []
    third = its.put("a", LATER_S)
    assert its.queued == [first]
    its.take_out(first)
    assert its.load(LATER_S) == [(0, "b")]
    its.loaded(LATER_S)
    assert its.queued == [second]
    its.take_out(second)
    assert its.load(2 * LATER_S) == [(0, "a")]
    its.loaded(2 * LATER_S)
    assert its.queued == [third]


def test_items_give_their_slot_to_a_call_and_go_on_after_it_and_take_none_of_a_call() -> None:
    its = Gate()
    items = [its.put("a", 0.0, call=False) for _ in range(3)]
    its.load(0.0)
    its.loaded(0.0)
    assert its.queued == items
    call = its.put("b", LATER_S)
    its.load(LATER_S)
    assert its.queued == []
    assert its.load(LATER_S) == [(0, "b")]
    its.loaded(LATER_S)
    assert its.queued == [call]
    assert list(its.gate.items) == items
    its = Gate()
    call = its.put("a", 0.0)
    its.load(0.0)
    its.loaded(0.0)
    its.put("b", LATER_S, call=False)
    assert its.load(LATER_S) == []
    assert its.queued == [call]


def test_prefixes_are_of_one_tenant_adapter_version_and_salt() -> None:
    salts = {
        cache_salt(tenant, adapter, own)
        for own in ("", "a", "b")
        for tenant in ("a", "b")
        for adapter in (None, Adapter("x", "/x", "1" * 64), Adapter("x", "/x", "2" * 64))
    }
    assert len(salts) == 18
