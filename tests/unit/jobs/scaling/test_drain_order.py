"""Order in which workers drain."""

from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.drain_order import drain_order
from tests.support.cases import each


def test_workers_go_by_what_would_be_lost_and_then_by_their_age() -> None:
    cases = [
        ({"old": ["a"], "new": ["a"], "newest": ["a"]}, [], ["newest", "new", "old"]),
        ({}, [], []),
        # Weights that only one worker has are last to go.
        ({"old": ["a"], "holder": ["a", "rare"], "new": ["a"]}, [], ["new", "old", "holder"]),
        # A copy counts until it has gone.
        ({"plain": ["a"], "one": ["a", "b"], "other": ["a", "b"]}, [], ["other", "plain", "one"]),
        # Copies in workers that stay count.
        ({"old": ["a"], "new": ["b"]}, [["b"]], ["new", "old"]),
        ({"old": ["a"], "new": ["b"]}, [["a"]], ["old", "new"]),
    ]
    for (held, staying, order), case in each(cases):
        with case:
            assert drain_order(held, staying) == order
    still_loading = drain_order({"loads": [], "new": ["a"], "rare": ["b"]})
    assert still_loading[0] == "loads", "it has nothing to lose"


@given(st.dictionaries(st.integers(), st.sets(st.sampled_from("abcde")), max_size=6))
def test_no_other_first_choice_loses_fewer_models(held: dict[int, set[str]]) -> None:
    order = drain_order(held)
    assert sorted(order) == sorted(held)
    if held:
        lost = {one: held[one] - set().union(*(held[o] for o in held if o != one)) for one in held}
        assert len(lost[order[0]]) == min(map(len, lost.values()))
