"""The last minute of processes, read together, and its figures by subject."""

from math import inf

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from jobs import clock
from jobs.telemetry.metrics import metrics
from jobs.telemetry.reports.figures import EVERYTHING, Figures, figures_by_subject
from jobs.telemetry.reports.reports import STALE_S, ProcessKind, Report, ReportSet, parse_fresh
from jobs.telemetry.reports.window import (
    RECENT_S,
    WINDOW_S,
    Series,
    Window,
    WindowDelta,
    difference,
    snapshot,
)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: at[0])
    return at


def test_a_window_forgets_what_is_old_and_tells_a_few_counters_of_the_last_seconds_too(
    now: list[float],
) -> None:
    registry = CollectorRegistry()
    calls = Counter("calls_total", "", ["model"], registry=registry)
    waiting = Gauge("waiting", "", registry=registry)
    window = Window(registry)
    calls.labels("a").inc(5)
    waiting.set(3)
    now[0] += 5
    first = window.advance()
    assert first.increases == {("calls_total", (("model", "a"),)): 5}
    assert first.gauges == {("waiting", ()): 3}
    for _ in range(int(WINDOW_S / 5) + 1):
        now[0] += 5
        last = window.advance()
    assert last.increases == {}
    assert last.seconds == WINDOW_S
    registry = CollectorRegistry()
    calls = Counter("millrace_calls_total", "", ["model"], registry=registry)
    others = Counter("others_total", "", registry=registry)
    window = Window(registry)
    for count in (100, 100, 100, 1, 2):
        now[0] += 5
        calls.labels("a").inc(count)
        others.inc(count)
        delta = window.advance()
    told = Report.unpack(_report("api_1", delta).pack())
    assert told.delta == delta
    recent = ReportSet([told]).recent()
    assert recent.rate("millrace_calls_total", model="a") == (1 + 2) / RECENT_S
    assert recent.rate("others_total") == 0
    assert ReportSet([told]).increase("others_total") == 303


def _observed(values: dict[str, list[float]]) -> WindowDelta:
    before = snapshot(metrics.REGISTRY)
    for model, seconds in values.items():
        for value in seconds:
            metrics.CALL_S.labels(model, "standard").observe(value)
    return difference(before, snapshot(metrics.REGISTRY))


def _report(name: str, stretch: WindowDelta, at: float = 100.0) -> Report:
    return Report(name, "api", at, stretch, {"pid": 1})


def test_reports_are_summed_over_processes_and_labels_left_out() -> None:
    one = _report("api_1", _observed({"m@1": [0.012, 0.018], "n@1": [0.4]}))
    two = _report("api_2", _observed({"m@1": [0.012] * 2}))
    reading = ReportSet([one, Report.unpack(two.pack())])
    assert reading.increase("millrace_call_seconds_count", model="m@1", class_="standard") == 4
    assert reading.increase("millrace_call_seconds_count") == 5
    by_model = reading.increase_by("millrace_call_seconds_count", "model")
    assert by_model == {"m@1": 4, "n@1": 1}
    assert reading.mean("millrace_call_seconds", model="m@1") == pytest.approx(0.0135)
    # All four lie between 0.01 and 0.02: interpolated there, not from zero.
    assert reading.quantile("millrace_call_seconds", 0.5, model="m@1") == pytest.approx(0.015)
    assert 0.3 < (reading.quantile("millrace_call_seconds", 0.99) or inf) <= 0.5
    assert reading.quantile("millrace_call_seconds", 0.5, model="none@1") is None
    assert reading.by_process("api_2").increase("millrace_call_seconds_count") == 2


def test_reports_of_processes_that_are_gone_or_of_another_release_are_left_out() -> None:
    nothing = WindowDelta(1.0, {}, {})
    fresh, old = _report("a", nothing), _report("b", nothing, at=100 - STALE_S - 1)
    ahead = _report("c", nothing, at=100 + STALE_S + 1)  # Redis' clock was set back meanwhile
    packed = [fresh.pack(), old.pack(), ahead.pack(), b"{}", b"no json", b"[]"]
    assert [report.name for report in parse_fresh(packed, now=100.0)] == ["a"]


def series(name: str, **labels: str) -> Series:
    return f"millrace_{name}", tuple(sorted(labels.items()))


def calls(outcome: str, job_class: str = "interactive") -> Series:
    return series("calls_total", model="m@1", outcome=outcome, **{"class": job_class})


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


def test_the_queue_is_that_of_the_whole_system_and_calls_are_answered_refused_or_failed() -> None:
    waiting = {
        series("queue_calls", model="m@1"): 3.0,
        series("queue_items", model="m@1"): 4.0,
        series("queue_items", model="n@1"): 10.0,
    }
    keepers = [report("keeper", {}, waiting, name=name) for name in ("a", "b")]
    its = found(*keepers)
    assert (its["model:m@1"].waiting, its[EVERYTHING].waiting) == (7.0, 17.0)
    ended = {"succeeded": 60.0, "overloaded": 6.0, "no_worker": 6.0, "deadline_passed": 3.0,
             "engine_error": 3.0, "cancelled": 99.0}  # fmt: skip
    api = report("api", {calls(outcome): count for outcome, count in ended.items()})
    for subject in (EVERYTHING, "model:m@1"):
        its = found(api)[subject]
        assert (its.calls_s, its.refused_s, its.failed_s) == pytest.approx((1.0, 0.2, 0.1))
    assert found() == {}, "nothing is known of nobody"


def test_figures_are_of_the_windows_of_all_apis() -> None:
    young = report("api", {calls("succeeded"): 10.0}, name="young", seconds=5.0)
    old = report("api", {calls("succeeded", "standard"): 60.0}, name="old")
    assert found(young, old)["model:m@1"].calls_s == pytest.approx(3.0)

    def buckets(**counts: float) -> dict[Series, float]:
        name = "call_seconds_bucket"
        return {series(name, model="m@1", le=le): count for le, count in counts.items()}

    apis = [
        report("api", buckets(**{"0.01": 90.0, "0.02": 5.0}), name="a"),
        report("api", buckets(**{"0.3": 5.0}), name="b"),
    ]
    its = found(*apis)["model:m@1"]
    assert its.p50_s == pytest.approx(0.005 + 0.005 * 50 / 90)
    assert its.p95_s == pytest.approx(0.02)
    assert found(*apis)[EVERYTHING].p95_s == its.p95_s


def test_a_worker_and_its_pool_have_what_they_launched() -> None:
    def worker(name: str, busy_s: float) -> Report:
        counts = {
            series("entries_total", model="m@1", kind="call"): 120.0,
            series("entries_total", model="n@1", kind="item"): 60.0,
            series("items_total", model="n@1", outcome="failed"): 6.0,
            series("generation_tokens_total", model="n@1"): 600.0,
            series("device_busy_seconds_total", device="cpu"): busy_s,
            series("model_device_seconds_total", model="m@1"): busy_s,
            series("launch_seconds_bucket", model="m@1", le="0.01"): 10.0,
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
    idle = found(report("worker", {}, name="7"))["worker:7"]
    assert (idle.calls_s, idle.busy, idle.p95_s) == (0.0, 0.0, None)
