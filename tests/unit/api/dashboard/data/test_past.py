"""What charts of the past are drawn from."""

from datetime import UTC, datetime, timedelta

from api.dashboard.data import past
from jobs.store.monitoring.history import PointRow
from jobs.telemetry.reports.figures import Figures

NOW = datetime(2026, 5, 1, 12, 34, 56, tzinfo=UTC)


def row(minutes_ago: int, **figures: float) -> PointRow:
    at = NOW.replace(second=0) - timedelta(minutes=minutes_ago)
    return PointRow(at, Figures(**figures))


def test_there_is_a_point_for_each_step_known_or_not() -> None:
    found = past.fill("model:m@1", "30m", [row(5, calls_s=1.0), row(2, calls_s=3.0)], NOW)
    assert len(found.times) == len(found.points) == 31
    assert found.times[-1] == NOW.replace(second=0)
    assert [n for n, point in enumerate(found.points) if point] == [25, 28]
    found = past.fill("model:m@1", "30m", [row(-1, calls_s=1.0)], NOW)  # by a clock that is ahead
    assert found.points[-1] == Figures(calls_s=1.0)


def test_charts_are_of_what_is_known() -> None:
    model = past.fill("model:m@1", "30m", [row(5, calls_s=1.0, busy=1.5, p50_s=0.2)], NOW)
    titles = [chart.title for chart in model.charts]
    assert titles == ["Throughput", "Latency of calls", "Devices busy"]
    [latency] = [chart for chart in model.charts if chart.unit == "ms"]
    assert list(latency.lines) == ["p50"]
    assert max(value or 0 for value in latency.lines["p50"]) == 200.0
    worker = past.fill("worker:1", "30m", [row(5, calls_s=1.0, busy=0.5, p50_s=0.2)], NOW)
    assert [chart.title for chart in worker.charts] == [
        "Throughput", "Latency of launches", "Utilization"
    ]  # fmt: skip
    assert max(value or 0 for value in worker.charts[-1].lines["busy"]) == 50.0


def test_a_table_has_few_rows_the_newest_first() -> None:
    rows = [row(minutes, calls_s=float(minutes)) for minutes in range(30, 0, -1)]
    table = past.fill("everything", "30m", rows, NOW).table
    assert len(table) == 15
    assert table[0][1].calls_s == 1.0
    assert past.fill("everything", "30m", [], NOW).table == []
