"""Figures of models, what charts of the past are drawn from, time ranges of URLs, and slow queries,
which are repeated seldom."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from api.dashboard.data import past
from api.dashboard.data.adaptive_cache import AdaptiveCache
from api.dashboard.data.model_stats import kv_cache, launch_sizes, tokens
from api.dashboard.data.time_range import PRESETS, TimeRange, parse_range
from jobs import clock
from jobs.errors import Invalid
from jobs.store.monitoring.history import PointRow
from jobs.telemetry.metrics.metrics import EDGES
from jobs.telemetry.reports.figures import Figures
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import Window, WindowDelta
from tests.unit.api.conftest import Clock


def read(registry: CollectorRegistry) -> ReportSet:
    """What a worker reports of its metrics."""
    return ReportSet([Report("worker_1", "worker", 0.0, Window(registry).advance(), {})])


def test_launches_of_each_size_are_counted_where_they_belong() -> None:
    registry, name = CollectorRegistry(), "millrace_launch_rows"
    rows = Histogram(name, "", ["model"], registry=registry, buckets=EDGES[name])
    for entries in (1, 1, 1, 2, 3, 8, 25, 5000):
        rows.labels("m@1").observe(entries)
    sizes = launch_sizes(read(registry), model="m@1")
    assert {name: count for name, count in sizes.items() if count} == {
        "1": 3, "2": 1, "3–4": 1, "5–8": 1, "17–32": 1, "1025+": 1,
    }  # fmt: skip


def reporting(name: str, **blocks: float) -> Report:
    """A worker's report of the blocks that tenants have of its 100."""
    gauges = {("millrace_kv_cache_blocks", (("model", "m@1"),)): 100.0}
    for tenant, its in blocks.items():
        labels = (("model", "m@1"), ("tenant", tenant))
        gauges["millrace_tenant_kv_cache_blocks", labels] = its
    return Report(name, "worker", 0.0, WindowDelta(60.0, {}, gauges), {})


def test_kv_blocks_are_those_of_all_workers_by_tenant_and_small_ones_share_a_part() -> None:
    reports = ReportSet([reporting("1", acme=20, other=30, gone=0), reporting("2", acme=50)])
    found = kv_cache(reports, "m@1")
    assert list(found.items()) == [("acme", 70), ("other", 30), ("(free)", 100)]
    assert kv_cache(reports, "other@1") == {}
    found = kv_cache(ReportSet([reporting("1", **{f"t{n}": 10.0 - n for n in range(9)})]), "m@1")
    assert list(found)[-2:] == ["(others)", "(free)"]
    assert found["(others)"] == 4 + 3 + 2
    assert sum(found.values()) == 100


def test_tokens_are_those_of_models_that_generate() -> None:
    registry = CollectorRegistry()
    names = ["model", "kind"]
    Gauge("millrace_num_requests_running", "", names, registry=registry).labels("m@1", "call")
    first = Histogram("millrace_time_to_first_token_seconds", "", names, registry=registry)
    first.labels("m@1", "call").observe(0.4)
    first.labels("m@1", "item").observe(9)
    for name, count in (("prefix_cache_queries", 40), ("prefix_cache_hits", 10)):
        Counter(f"millrace_{name}", "", ["model"], registry=registry).labels("m@1").inc(count)
    reports = read(registry)
    found = tokens(reports, "m@1")
    assert 0.25 < (found["ttft_p95_s"] or 0) <= 0.5
    assert (found["itl_p50_s"], found["cached"]) == (None, 0.25)
    assert tokens(reports, "other@1") == {}


NOW = datetime(2026, 5, 1, 12, 34, 56, tzinfo=UTC)


def row(minutes_ago: int, **figures: float) -> PointRow:
    at = NOW.replace(second=0) - timedelta(minutes=minutes_ago)
    return PointRow(at, Figures(**figures))


def test_there_is_a_point_for_each_step_and_a_table_of_few_rows() -> None:
    found = past.fill("model:m@1", "30m", [row(5, calls_s=1.0), row(2, calls_s=3.0)], NOW)
    assert len(found.times) == len(found.points) == 31
    assert found.times[-1] == NOW.replace(second=0)
    assert [n for n, point in enumerate(found.points) if point] == [25, 28]
    found = past.fill("model:m@1", "30m", [row(-1, calls_s=1.0)], NOW)  # by a clock that is ahead
    assert found.points[-1] == Figures(calls_s=1.0)
    rows = [row(minutes, calls_s=float(minutes)) for minutes in range(30, 0, -1)]
    table = past.fill("everything", "30m", rows, NOW).table
    assert len(table) == 15
    assert table[0][1].calls_s == 1.0
    assert past.fill("everything", "30m", [], NOW).table == []


def test_charts_are_of_what_is_known() -> None:
    model = past.fill("model:m@1", "30m", [row(5, calls_s=1.0, busy=1.5, p50_s=0.2)], NOW)
    titles = [chart.title for chart in model.charts]
    assert titles == ["Throughput", "Latency of calls", "Devices busy"]
    [latency] = [chart for chart in model.charts if chart.unit == "ms"]
    assert list(latency.lines) == ["p50"]
    assert max(value or 0 for value in latency.lines["p50"]) == 200.0
    worker = past.fill("worker:1", "30m", [row(5, calls_s=1.0, busy=0.5, p50_s=0.2)], NOW)
    titles = [chart.title for chart in worker.charts]
    assert titles == ["Throughput", "Latency of launches", "Utilization"]
    assert max(value or 0 for value in worker.charts[-1].lines["busy"]) == 50.0


NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_changes_once_a_minute(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for second in (0, 17, 59):
        monkeypatch.setattr(clock, "now", lambda second=second: NOON + timedelta(seconds=second))
        found.add(parse_range(preset=name))
    [one] = found
    assert (one.start, one.end) == (NOON - PRESETS[name][1], None)
    assert one.pairs == (("range", name),)


def test_times_win_over_a_preset_and_without_parameters_nothing_is_asked_for() -> None:
    found = parse_range(preset="1h", since="2026-01-31", until="2026-01-31T12:00")
    assert found.pairs == (("since", "2026-01-31T00:00"), ("until", "2026-01-31T12:00"))
    assert (found.start, found.end) == (datetime(2026, 1, 31, tzinfo=UTC), NOON)
    assert parse_range() == TimeRange()
    assert parse_range().pairs == ()
    with pytest.raises(Invalid, match="write 2026-01-31T12:00"):
        parse_range(since="2026-02-31")


class Queries:
    def __init__(self, time: Clock) -> None:
        self.time, self.kept = time, AdaptiveCache[str]()

    def ask(self, question: object, takes_s: float) -> str:
        def answer() -> str:
            self.time.now_s += takes_s
            return f"at {self.time.now_s:g}"

        return self.kept.get(question, answer)


@pytest.fixture
def queries(time: Clock) -> Queries:
    return Queries(time)


def test_an_answer_is_good_for_longer_the_longer_it_took(queries: Queries) -> None:
    assert queries.ask("slow", 0.1) == "at 0.1"
    queries.time.now_s = 40.0
    assert queries.ask("slow", 0.1) == "at 0.1"
    queries.time.now_s = 60.0
    assert queries.ask("slow", 0.0) == "at 60"


def test_questions_have_their_answers_until_there_are_too_many(queries: Queries) -> None:
    assert [queries.ask(n, 1.0) for n in range(300)] == [f"at {n + 1}" for n in range(300)]
    assert queries.ask(299, 1.0) == "at 300"
    assert queries.ask(0, 1.0) == "at 301"
