"""The formulas behind the figures of calls, the confidence interval of a cost, and a report."""

import json

import numpy as np
import pytest

from ops.bench.results import statistics
from ops.bench.results.report import Report, holds
from tests.unit.ops.bench.made import made

STEPS = (100, 200, 300, 400)


def test_the_highest_step_is_the_last_one_before_one_that_fails() -> None:
    assert statistics.highest(lambda step: step != 300, STEPS, 100) == 200
    assert statistics.highest(lambda step: True, STEPS, 200) == 400
    assert statistics.highest(lambda step: step < 300, STEPS, 300) == 200
    assert statistics.highest(lambda step: False, STEPS, 300) == 0


def test_calls_take_one_row_slot_each_and_what_is_late_wrong_or_refused_is_no_goodput() -> None:
    assert statistics.slots_left(300, 6, 100, 0.1) == pytest.approx(0.95)
    assert statistics.slots_left(320, 1, 32, 0.1) == pytest.approx(0.0)
    calls = made([0, 1, 2, 4], [0.1, 0.3, 0.1, 0.1], [200, 200, 429, 200])
    assert statistics.goodput_per_s(calls, 200) == pytest.approx(2 / 4)


def test_padding_and_predictions_count_by_launches() -> None:
    """One launch of 10 and 30 units, padded to 2 x 30, and one of 100 without padding."""
    calls = made(
        [0, 1, 2], [0.1] * 3, [200] * 3, units=[10, 30, 100], padding=[1 / 3, 1 / 3, np.nan]
    )
    assert statistics.padding_share(calls) == pytest.approx(20 / 160)
    calls = made(
        [0] * 5, [0.1] * 5, [200] * 5,
        predicted_ms=[10, 10, 10, 11, 30], engine_ms=[20, 20, 20, 10, 20],
    )  # fmt: skip
    assert statistics.predict_error(calls) == pytest.approx(0.5)
    assert statistics.predict_error(made([0], [0.1], [200])) is None, "answers that do not say it"


def test_calls_stand_for_their_launches() -> None:
    """Two launches: three calls that were due, one that was paced."""
    calls = made(
        [0, 1, 2, 3, 4], [0.1] * 5, [200, 200, 200, 200, 503],
        batch_size=[3, 3, 3, 1, np.nan], flush=["deadline"] * 3 + ["pace", ""],
    )  # fmt: skip
    assert statistics.mean_launch(calls) == pytest.approx(2)
    shares = statistics.flush_shares(calls)
    assert shares == pytest.approx({"deadline": 0.5, "pace": 0.5})
    assert statistics.points_apart(shares, {"deadline": 0.6, "knee": 0.04}) == pytest.approx(50)


def test_fairness_is_of_equal_shares_or_of_weights() -> None:
    assert statistics.jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert statistics.jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(1 / 4)
    assert statistics.jain([1.0, 2.0]) == pytest.approx(9 / 10)
    assert statistics.jain([0.0, 0.0]) is None
    """7 of 7: one of weight 1 got 1.5 instead of 1, one of weight 4 got 3.5."""
    weights = {"one": 1.0, "two": 2.0, "four": 4.0}
    assert statistics.share_error({"one": 10, "two": 20, "four": 40}, weights) == pytest.approx(0)
    assert statistics.share_error({"one": 1.5, "two": 2, "four": 3.5}, weights) == pytest.approx(
        0.5
    )
    assert statistics.share_error({"a": 0.0}, {"a": 1.0, "b": 2.0}) is None
    # One that got nothing is as far off as can be.
    assert statistics.share_error({"a": 1.0}, {"a": 1.0, "b": 9.0}) == pytest.approx(9)
    assert statistics.share_error({"b": 1.0}, {"a": 1.0, "b": 9.0}) == pytest.approx(1)


def test_the_interval_holds_a_difference_that_is_there_in_noise_that_both_have() -> None:
    random = np.random.default_rng(1)
    noise = random.normal(5, 1, 40)
    off, on = noise, noise + 0.05 + random.normal(0, 0.01, 40)
    low, high = statistics.interval(lambda a, b: float(np.median(b - a)), off, on)
    assert 0.04 < low < 0.05 < high < 0.06
    assert statistics.interval(lambda a, b: float(np.median(b - a)), off, off) == (0, 0)


def test_a_threshold_has_three_forms_and_no_other() -> None:
    assert holds("<= 5", 5.0)
    assert not holds(">= 0.95", 0.9)
    assert holds("0.82 ± 0.01", 0.811)
    with pytest.raises(ValueError, match="unknown form"):
        holds("about 5", 5.0)


def test_figures_and_latencies_have_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("x", ["a_cost_ms <= 5", "missing <= 1"])
    report.add("a_", cost_ms=4.0)
    report.spread("b_", rate=[1.0, 2.0, 3.0])
    calls = [made([0, 1], [0.1, 0.1], [200] * 2), made([0, 1], [0.3, 0.3], [200] * 2)]
    report.latencies(calls, "c_p{}_ms")
    report.finish()
    line = json.loads(capsys.readouterr().out)
    assert line["figures"] == {
        "a_cost_ms": 4.0, "b_rate": 2.0, "b_rate_spread": 1.0,
        "c_p95_ms": 200.0, "c_p95_ms_spread": 1.0, "c_p50_ms": 200.0, "c_p99_ms": 200.0,
    }  # fmt: skip
    assert [row["holds"] for row in line["asked"]] == [True, False]


def test_a_figure_that_is_left_out_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("x", ["spearman >= 0.8", "cost_ms <= 5"])
    report.add(cost_ms=4.0)
    report.leave_out("spearman", "no scores here")
    report.finish()
    printed = capsys.readouterr()
    assert "spearman is left out: no scores here" in printed.err
    line = json.loads(printed.out)
    assert line["data"] == "made"
    assert line["asked"] == [
        {"figure": "spearman", "value": None, "asked": ">= 0.8", "holds": None,
         "left_out": "no scores here"},
        {"figure": "cost_ms", "value": 4.0, "asked": "<= 5", "holds": True},
    ]  # fmt: skip
