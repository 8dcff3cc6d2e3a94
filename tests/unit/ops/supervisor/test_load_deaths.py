"""Deaths of a worker while it loads a model."""

from dataclasses import replace

from jobs.models.model import Model
from ops.supervisor.load_deaths import MOST_DEATHS, LoadDeaths
from workers.device.monitoring.load_history import LoadHistory

A, B = Model("a", "1", "echo"), Model("b", "1", "echo")


def test_a_model_is_loaded_last_after_a_death_and_left_out_after_three() -> None:
    deaths = LoadDeaths()
    for _ in range(MOST_DEATHS - 1):
        assert not deaths.count(A, "crashed")
        assert deaths.history([A, B]) == LoadHistory(("a@1",))
    assert deaths.count(A, "hung")
    found = deaths.history([A, B])
    assert found.late == ()
    assert "hung 3 times while it loaded" in found.left_out["a@1"]


def test_deaths_that_an_item_may_have_caused_count_a_third() -> None:
    deaths = LoadDeaths()
    left_out = [deaths.count(A, "crashed", busy=True) for _ in range(3 * MOST_DEATHS)]
    assert left_out.index(True) == 3 * MOST_DEATHS - 1


def test_a_changed_entry_and_an_orderly_end_begin_anew() -> None:
    deaths = LoadDeaths()
    for _ in range(MOST_DEATHS):
        deaths.count(A, "crashed")
    assert deaths.history([replace(A, memory_mb=1)]) == LoadHistory()
    deaths.forget()
    assert deaths.history([A]) == LoadHistory()


def test_a_history_that_is_too_long_is_told_in_part() -> None:
    reasons = {f"model-{n}@1": "it crashed" for n in range(100)}
    told = LoadHistory.unpack(LoadHistory(("late@1",), reasons).pack(1000))
    assert 0 < len(told.left_out) < 100
    assert LoadHistory.unpack(LoadHistory().pack(1000)) == LoadHistory()
