"""Turns of tenants by tokens."""

from workers.generation.admission.turns import Turns


def test_output_counts_twice_and_the_weight_divides() -> None:
    turns = Turns()
    turns.join("a", 1.0)
    turns.join("b", 2.0)
    turns.serve("a", input=10)
    turns.serve("b", input=10, output=10)
    assert (turns.counter("a"), turns.counter("b")) == (10.0, 15.0)
    assert turns.ordered(["b", "a"]) == ["a", "b"]


def test_a_tenant_that_comes_back_has_saved_nothing_up() -> None:
    turns = Turns()
    turns.join("busy", 1.0)
    turns.serve("busy", output=50)
    turns.join("back", 1.0)
    assert turns.counter("back") == 100.0


def test_a_tenant_that_had_more_stays_behind() -> None:
    turns = Turns()
    turns.join("light", 1.0)
    turns.join("heavy", 1.0)
    turns.serve("heavy", output=50)
    turns.leave("heavy")
    turns.join("heavy", 1.0)
    assert turns.ordered(["heavy", "light"]) == ["light", "heavy"]


def test_all_start_alike_once_nobody_waits() -> None:
    turns = Turns()
    turns.join("a", 1.0)
    turns.serve("a", output=50)
    turns.leave("a")
    turns.join("b", 1.0)
    turns.join("a", 1.0)
    assert turns.counter("a") == turns.counter("b") == 0.0
