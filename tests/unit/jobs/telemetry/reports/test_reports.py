"""The last minute of processes, read together."""

from math import inf

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from jobs import clock
from jobs.telemetry.metrics import metrics
from jobs.telemetry.metrics.label_limit import OTHER, LabelLimit
from jobs.telemetry.reports.reports import STALE_S, Report, ReportSet, parse_fresh
from jobs.telemetry.reports.window import (
    RECENT_S,
    WINDOW_S,
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


def test_a_window_forgets_what_is_older_than_a_minute(now: list[float]) -> None:
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


def test_a_few_counters_are_told_of_the_last_seconds_too(now: list[float]) -> None:
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
    found = parse_fresh(
        [fresh.pack(), old.pack(), ahead.pack(), b"{}", b"no json", b"[]"], now=100.0
    )
    assert [report.name for report in found] == ["a"]


def test_so_many_labels_are_kept_and_the_rest_share_one() -> None:
    bounded = LabelLimit(2)
    assert [bounded(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]
