"""Two jobs' results side by side."""

import json
import random
from typing import Any

import pytest
from hypothesis import example, given

from ops.cli.results.diff import Diff, Tolerance, diff
from tests.support.json_values import json_values


def line(seq: int, output: Any = None, id: str | None = None, failed: str = "") -> bytes:
    error = {"code": failed, "message": "…"} if failed else None
    outcome = "failed" if failed else "succeeded"
    result = {"seq": seq, "custom_id": id, "outcome": outcome, "output": output, "error": error}
    return json.dumps(result).encode()


def of(a: Any, b: Any, **tolerance: float) -> Diff:
    """Of two outputs."""
    return diff([line(0, a)], [line(0, b)], tolerance=Tolerance(**tolerance))


def counts(found: Diff) -> tuple[int, int, int, int]:
    return found.same, found.changed, found.only_a, found.only_b


def test_results_are_aligned_by_custom_id_whatever_their_order_and_else_by_seq() -> None:
    a = [line(n, n, f"id-{n}") for n in range(100)]
    shuffled = random.Random(1).sample(range(100), 100)
    b = [line(seq, n, f"id-{n}") for seq, n in enumerate(shuffled)]
    assert counts(diff(a, b)) == (100, 0, 0, 0)
    assert counts(diff(a, b, by="seq"))[1] > 50
    a = [line(n, n) for n in range(5)]
    assert counts(diff(a, a[1:3])) == (2, 0, 3, 0)
    assert counts(diff(a[:1], a)) == (1, 0, 0, 4)
    assert counts(diff([], [])) == (0, 0, 0, 0)
    assert diff([], []).is_same
    assert not diff(a, a[1:]).is_same


def test_outcomes_that_changed_are_counted() -> None:
    a = [line(0, "x"), line(1, failed="engine_error"), line(2, failed="engine_error")]
    b = [line(0, failed="invalid_output"), line(1, "x"), line(2, failed="engine_error")]
    found = diff(a, b)
    assert counts(found) == (1, 2, 0, 0)
    assert found.outcomes == {("succeeded", "failed"): 1, ("failed", "succeeded"): 1}
    other = diff([line(0, failed="engine_error")], [line(0, failed="invalid_output")])
    assert counts(other) == (0, 1, 0, 0)
    assert other.shown[0]["b"] == "failed invalid_output"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x", "y"), (1, "1"), (1, True), ([1, 0], [True, 0]), ([1], [1, 2]), ([], [1]), (None, 0),
        ({"a": 1}, {"a": 1, "b": 2}), ([[1], [2, 3]], [[1], [2, 4]]), (2**53, 2**53 + 1),
        (10**400, 10**400 + 1), ([2**53], [2**53 + 1]), ([{"score": 0.5}], [{"score": 0.25}]),
        ([1.7e308, 1.0], [-1.7e308, 1.0]),
    ],
)  # fmt: skip
def test_outputs_that_differ_do(a: Any, b: Any) -> None:
    assert counts(of(a, b)) == counts(of(b, a)) == (0, 1, 0, 0)


@example([1e300, 1e300])
@example([1e-300, 1e-300])
@example([10**400, "\0"])
@given(json_values)
def test_any_output_is_the_same_as_itself(value: Any) -> None:
    assert counts(of(value, json.loads(json.dumps(value)))) == (1, 0, 0, 0)


def test_numbers_are_compared_with_tolerance_and_vectors_by_distance_and_cosine() -> None:
    a, b = {"scores": [{"n": 1.0}, {"n": 100.0}]}, {"scores": [{"n": 1.05}, {"n": 105.0}]}
    assert not of(a, b).is_same
    assert not of(a, b, atol=0.1).is_same
    assert of(a, b, rtol=0.05).is_same
    assert of(a, b, atol=5).is_same
    assert of(a, b).max_abs_diff == 5.0
    found = of([1.0, 0.0, 0.0], [1.0, 0.1, 0.0])
    assert not found.is_same
    assert found.max_abs_diff == pytest.approx(0.1)
    assert found.min_cosine == pytest.approx(1 / 1.01**0.5)
    assert of([1.0, 0.0], [1.0, 0.1], min_cosine=0.99).is_same
    assert not of([1.0, 0.0], [0.0, 1.0], min_cosine=0.99).is_same
    assert not of([1.0, 0.0], [0.0, 0.0], min_cosine=-1).is_same  # there is no angle
    rows = of([[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    assert rows.min_cosine == 0.0


def test_the_first_differences_are_kept_and_all_are_counted() -> None:
    a = [line(n, "long" * 100) for n in range(9)]
    found = diff(a, [line(n, n) for n in range(9)], show=2)
    assert found.changed == 9
    assert [one["item"] for one in found.shown] == [0, 1]
    assert len(found.shown[0]["a"]) == 80
