"""Figures of a report, and the thresholds that they are held to."""

import json

import pytest

from ops.bench.results.report import Report, holds
from tests.unit.ops.bench.made import made


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
