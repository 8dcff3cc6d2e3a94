"""Figures of models, from what processes tell of themselves."""

from prometheus_client import CollectorRegistry, Histogram

from api.dashboard.data.model_stats import launch_sizes
from jobs.telemetry.metrics.metrics import EDGES
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import Window


def test_launches_of_each_size_are_counted_where_they_belong() -> None:
    registry = CollectorRegistry()
    rows = Histogram(
        "millrace_launch_rows",
        "",
        ["model"],
        registry=registry,
        buckets=EDGES["millrace_launch_rows"],
    )
    for entries in (1, 1, 1, 2, 3, 8, 25, 5000):
        rows.labels("m@1").observe(entries)
    reading = ReportSet([Report("worker_1", "worker", 0.0, Window(registry).advance(), {})])
    sizes = launch_sizes(reading, model="m@1")
    assert {name: count for name, count in sizes.items() if count} == {
        "1": 3, "2": 1, "3–4": 1, "5–8": 1, "17–32": 1, "1025+": 1,
    }  # fmt: skip
