"""Rounds in which the sides of a comparison are measured."""

from functools import partial

from ops.bench.harness.scale import Scale


def test_all_sides_are_measured_in_each_round() -> None:
    order: list[tuple[str, int]] = []

    def measure(name: str, number: int) -> int:
        order.append((name, number))
        return len(order)

    sides = {name: partial(measure, name) for name in ("a", "b")}
    assert Scale(2, 1.0).in_turn(sides) == {"a": [1, 3], "b": [2, 4]}
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
