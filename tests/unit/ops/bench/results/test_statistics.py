"""The formulas behind the figures of calls."""

import numpy as np
import pytest

from ops.bench.results.statistics import (
    flush_shares,
    goodput_per_s,
    highest,
    jain,
    mean_launch,
    padding_share,
    points_apart,
    predict_error,
    share_error,
    slots_left,
)
from tests.unit.ops.bench.made import made

STEPS = (100, 200, 300, 400)


def test_the_highest_step_is_the_last_one_before_one_that_fails() -> None:
    assert highest(lambda step: step != 300, STEPS, 100) == 200
    assert highest(lambda step: True, STEPS, 200) == 400
    assert highest(lambda step: step < 300, STEPS, 300) == 200
    assert highest(lambda step: False, STEPS, 300) == 0


def test_calls_take_one_row_slot_each() -> None:
    assert slots_left(300, 6, 100, 0.1) == pytest.approx(0.95)
    assert slots_left(320, 1, 32, 0.1) == pytest.approx(0.0)


def test_what_is_late_wrong_or_refused_is_no_goodput() -> None:
    calls = made([0, 1, 2, 4], [0.1, 0.3, 0.1, 0.1], [200, 200, 429, 200])
    assert goodput_per_s(calls, 200) == pytest.approx(2 / 4)


def test_padding_is_weighed_by_what_launches_computed() -> None:
    """One launch of 10 and 30 units, padded to 2 x 30, and one of 100 without padding."""
    calls = made(
        [0, 1, 2], [0.1] * 3, [200] * 3, units=[10, 30, 100], padding=[1 / 3, 1 / 3, np.nan]
    )
    assert padding_share(calls) == pytest.approx(20 / 160)


def test_a_prediction_counts_once_a_launch_however_many_calls_were_in_it() -> None:
    calls = made(
        [0] * 5, [0.1] * 5, [200] * 5,
        predicted_ms=[10, 10, 10, 11, 30], engine_ms=[20, 20, 20, 10, 20],
    )  # fmt: skip
    assert predict_error(calls) == pytest.approx(0.5)


def test_there_is_no_prediction_error_of_answers_that_do_not_say_it() -> None:
    assert predict_error(made([0], [0.1], [200])) is None


def test_calls_stand_for_their_launches() -> None:
    """Two launches: three calls that were due, one that was paced."""
    calls = made(
        [0, 1, 2, 3, 4], [0.1] * 5, [200, 200, 200, 200, 503],
        batch_size=[3, 3, 3, 1, np.nan], flush=["deadline"] * 3 + ["pace", ""],
    )  # fmt: skip
    assert mean_launch(calls) == pytest.approx(2)
    assert flush_shares(calls) == pytest.approx({"deadline": 0.5, "pace": 0.5})


def test_shares_are_compared_reason_by_reason() -> None:
    assert points_apart({"pace": 0.9, "full": 0.1}, {"pace": 0.96, "knee": 0.04}) == pytest.approx(
        10
    )


def test_fairness_is_one_of_equal_shares_and_none_of_nothing() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(1 / 4)
    assert jain([1.0, 2.0]) == pytest.approx(9 / 10)
    assert jain([0.0, 0.0]) is None
    assert share_error({"a": 0.0}, {"a": 1.0, "b": 2.0}) is None


def test_a_share_is_held_against_its_weight() -> None:
    """7 of 7: one of weight 1 got 1.5 instead of 1, one of weight 4 got 3.5."""
    weights = {"one": 1.0, "two": 2.0, "four": 4.0}
    assert share_error({"one": 10, "two": 20, "four": 40}, weights) == pytest.approx(0)
    assert share_error({"one": 1.5, "two": 2, "four": 3.5}, weights) == pytest.approx(0.5)


def test_one_that_got_nothing_is_as_far_off_as_can_be() -> None:
    assert share_error({"a": 1.0}, {"a": 1.0, "b": 9.0}) == pytest.approx(9)
    assert share_error({"b": 1.0}, {"a": 1.0, "b": 9.0}) == pytest.approx(1)
