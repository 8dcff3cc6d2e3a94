"""Figures of a minute, by subject."""

import pytest

from jobs.telemetry.reports.figures import EVERYTHING, Figures, figures_by_subject
from jobs.telemetry.reports.reports import ProcessKind, Report, ReportSet
from jobs.telemetry.reports.window import Series, WindowDelta


def series(name: str, **labels: str) -> Series:
    return name, tuple(sorted(labels.items()))


def calls(outcome: str, job_class: str = "interactive") -> Series:
    return series("millrace_calls_total", model="m@1", outcome=outcome, **{"class": job_class})


def report(
    kind: ProcessKind,
    increases: dict[Series, float],
    gauges: dict[Series, float] | None = None,
    name: str = "",
    seconds: float = 60.0,
) -> Report:
    told = {"pool": "gpu"} if kind == "worker" else {}
    return Report(name or kind, kind, 0.0, WindowDelta(seconds, increases, gauges or {}), told)


def found(*reports: Report) -> dict[str, Figures]:
    return figures_by_subject(ReportSet(reports))


def test_of_nobody_nothing_is_known() -> None:
    assert found() == {}


def test_calls_are_answered_refused_or_failed_and_cancelled_ones_are_none_of_these() -> None:
    ended = {"succeeded": 60.0, "overloaded": 6.0, "no_worker": 6.0, "deadline_passed": 3.0,
             "engine_error": 3.0, "cancelled": 99.0}  # fmt: skip
    api = report("api", {calls(outcome): count for outcome, count in ended.items()})
    for subject in (EVERYTHING, "model:m@1"):
        its = found(api)[subject]
        assert (its.calls_s, its.refused_s, its.failed_s) == pytest.approx((1.0, 0.2, 0.1))


def test_a_rate_is_over_the_window_of_its_process() -> None:
    young = report("api", {calls("succeeded"): 10.0}, name="young", seconds=5.0)
    old = report("api", {calls("succeeded", "standard"): 60.0}, name="old")
    assert found(young, old)["model:m@1"].calls_s == pytest.approx(3.0)


def test_quantiles_are_of_the_calls_of_all_apis() -> None:
    def buckets(**counts: float) -> dict[Series, float]:
        name = "millrace_call_seconds_bucket"
        return {series(name, model="m@1", le=le): count for le, count in counts.items()}

    apis = [
        report("api", buckets(**{"0.01": 90.0, "0.02": 5.0}), name="a"),
        report("api", buckets(**{"0.3": 5.0}), name="b"),
    ]
    its = found(*apis)["model:m@1"]
    assert its.p50_s == pytest.approx(0.005 + 0.005 * 50 / 90)
    assert its.p95_s == pytest.approx(0.02)
    assert found(*apis)[EVERYTHING].p95_s == its.p95_s


def test_every_keeper_reports_the_queue_of_the_whole_system() -> None:
    waiting = {
        series("millrace_queue_calls", model="m@1"): 3.0,
        series("millrace_queue_items", model="m@1"): 4.0,
        series("millrace_queue_items", model="n@1"): 10.0,
    }
    keepers = [report("keeper", {}, waiting, name=name) for name in ("a", "b")]
    its = found(*keepers)
    assert (its["model:m@1"].waiting, its[EVERYTHING].waiting) == (7.0, 17.0)


def test_a_worker_and_its_pool_have_what_they_launched() -> None:
    def worker(name: str, busy_s: float) -> Report:
        counts = {
            series("millrace_entries_total", model="m@1", kind="call"): 120.0,
            series("millrace_entries_total", model="n@1", kind="item"): 60.0,
            series("millrace_items_total", model="n@1", outcome="failed"): 6.0,
            series("millrace_generation_tokens_total", model="n@1"): 600.0,
            series("millrace_device_busy_seconds_total", device="cpu"): busy_s,
            series("millrace_model_device_seconds_total", model="m@1"): busy_s,
            series("millrace_launch_seconds_bucket", model="m@1", le="0.01"): 10.0,
        }
        return report("worker", counts, name=name)

    its = found(worker("1", 30.0), worker("2", 90.0))
    one = its["worker:1"]
    assert (one.calls_s, one.items_s, one.failed_s) == pytest.approx((2.0, 1.0, 0.1))
    assert (one.tokens_s, one.busy) == pytest.approx((10.0, 0.5))
    assert one.p50_s == pytest.approx(0.0075)
    assert (one.refused_s, one.waiting) == (None, None)
    assert (its["pool:gpu"].calls_s, its["pool:gpu"].busy) == pytest.approx((4.0, 0.75))
    assert its[EVERYTHING].busy == pytest.approx(0.75)
    assert its["model:m@1"].busy == pytest.approx(2.0)  # devices
    assert its["worker:2"].busy == 1.0


def test_an_idle_worker_is_idle_rather_than_unknown() -> None:
    its = found(report("worker", {}, name="7"))["worker:7"]
    assert (its.calls_s, its.busy, its.p95_s) == (0.0, 0.0, None)
