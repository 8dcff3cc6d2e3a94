"""Figures of models, from what processes tell of themselves."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from api.dashboard.data.model_stats import kv_cache, launch_sizes, tokens
from jobs.telemetry.metrics.metrics import EDGES
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import Window, WindowDelta


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
