"""Slots of adapters: the least recently used leaves, unless it is pinned, used or new."""

from jobs.models.adapters import Adapter
from workers.engines.adapters.slots import Slot, Slots

LATER_S = 100.0


def adapter(name: str, *, pinned: bool = False) -> Adapter:
    return Adapter(name, f"/{name}", "a" * 64, pinned=pinned)


def loaded(slots: Slots, name: str, now_s: float, *, pinned: bool = False) -> Slot | None:
    slot = slots.assign(adapter(name, pinned=pinned), now_s)
    if slot:
        slots.loaded(slot, now_s, 0.1)
    return slot


def names(slots: Slots) -> list[str]:
    return [slot.adapter.name for slot in slots if slot.adapter]


def test_the_least_recently_used_leaves_unless_it_has_just_come() -> None:
    slots = Slots(2)
    first, _ = loaded(slots, "a", 0.0), loaded(slots, "b", 1.0)
    first.used_s = 2.0
    assert loaded(slots, "c", LATER_S)
    assert names(slots) == ["a", "c"]
    assert (slots.take_evictions(), slots.take_evictions()) == (1, 0)
    slots = Slots(1)
    loaded(slots, "a", 1.0)
    assert loaded(slots, "b", 1.4) is None, "it stays for some times its load"
    assert loaded(slots, "b", 1.6)


def test_pinned_used_and_loading_ones_stay_and_another_version_is_another_one() -> None:
    slots = Slots(3)
    loaded(slots, "a", 0.0, pinned=True)
    used = loaded(slots, "b", 0.0)
    used.users["somebody"] = None
    assert slots.assign(adapter("c"), 0.0)
    assert slots.assign(adapter("d"), LATER_S) is None
    used.users.clear()
    assert loaded(slots, "d", LATER_S)
    assert names(slots) == ["a", "d", "c"]
    slots = Slots(2)
    loaded(slots, "a", 0.0)
    assert slots.find(adapter("a"))
    assert slots.find(Adapter("a", "/a", "b" * 64)) is None
