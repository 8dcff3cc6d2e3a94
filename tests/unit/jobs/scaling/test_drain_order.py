"""Order in which workers drain."""

from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.drain_order import drain_order


def test_the_youngest_of_equals_goes_first() -> None:
    assert drain_order({"old": ["a"], "new": ["a"], "newest": ["a"]}) == ["newest", "new", "old"]
    assert drain_order({}) == []


def test_weights_that_only_one_worker_has_are_last_to_go() -> None:
    held = {"old": ["a"], "holder": ["a", "rare"], "new": ["a"]}
    assert drain_order(held) == ["new", "old", "holder"]


def test_one_that_loads_still_has_nothing_to_lose() -> None:
    assert drain_order({"loads": [], "new": ["a"], "rare": ["b"]})[0] == "loads"


def test_a_copy_counts_until_it_has_gone() -> None:
    # Both have it: once one went, the other is the only one, and "plain" goes before it.
    assert drain_order({"plain": ["a"], "one": ["a", "b"], "other": ["a", "b"]}) == [
        "other", "plain", "one"
    ]  # fmt: skip


def test_copies_in_workers_that_stay_count() -> None:
    assert drain_order({"old": ["a"], "new": ["b"]}, [["b"]]) == ["new", "old"]
    assert drain_order({"old": ["a"], "new": ["b"]}, [["a"]]) == ["old", "new"]


@given(st.dictionaries(st.integers(), st.sets(st.sampled_from("abcde")), max_size=6))
def test_no_other_first_choice_loses_fewer_models(held: dict[int, set[str]]) -> None:
    order = drain_order(held)
    assert sorted(order) == sorted(held)
    if held:
        lost = {one: held[one] - set().union(*(held[o] for o in held if o != one)) for one in held}
        assert len(lost[order[0]]) == min(map(len, lost.values()))
