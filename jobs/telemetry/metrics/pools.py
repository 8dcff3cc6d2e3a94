"""Metrics of pools: their load as a share of what they give, and what the autoscaler decided."""

from collections.abc import Callable, Mapping

from jobs.telemetry.metrics.labels import GaugeTable
from jobs.telemetry.metrics.metrics import _counter, _gauge, _section

_section("keeper", "pools; with several keepers, take the max")

USED = _gauge(
    "millrace_pool_capacity_used{pool}",
    "Work of calls over the last ten seconds, refused ones included, as device time at full "
    "launches over what the ready workers give (KV cache for models that generate): 1 is all. "
    "Of the pool api: requests, over those that its apis carry.",
)
OFFERED = _gauge("millrace_pool_offered_replicas{pool}", "The same work, in workers.")
BACKLOG_S = _gauge(
    "millrace_pool_backlog_seconds{pool}", "Work of waiting items, as time of one worker."
)
DRAIN = _gauge(
    "millrace_pool_drain_seconds{pool}",
    "Predicted time until waiting items are done, by what calls leave of the ready workers.",
)
WAIT_S = _gauge("millrace_pool_oldest_wait_seconds{pool}", "Longest wait of a call that waits.")
SLACK_S = _gauge(
    "millrace_pool_slack_seconds{pool}",
    "Time until the most urgent waiting call is due; absent while none waits.",
)
REFUSED = _gauge(
    "millrace_pool_refused_ratio{pool}", "Share of calls refused for load, last ten seconds."
)
LATE = _gauge(
    "millrace_pool_late_ratio{pool}", "Share of answered calls past their target, likewise."
)
LAG_S = _gauge(
    "millrace_pool_event_loop_lag_seconds{pool}",
    "Lag of the event loop that half of the apis have at least; of the pool api alone.",
)
REQUESTS = _gauge(
    "millrace_pool_requests_per_second{pool}",
    "HTTP requests to all apis over the last ten seconds; of the pool api alone.",
)
DESIRED = _gauge(
    "millrace_pool_desired_replicas{pool}",
    "Workers or apis that the autoscaler decided on, where it is on.",
)
OVERDUE = _gauge(
    "millrace_pool_overdue_replicas{pool}",
    "Workers that were decided on and aren't ready after three boots; 0: none.",
)
RECLAIMED = _gauge(
    "millrace_pool_reclaimed_workers{pool,notice}",
    "Spot workers whose machine was reclaimed in the last hour, by the notice that there was: "
    "sigterm, file, aws, gcp, azure; silence: none.",
)
DECISIONS = _counter(
    "millrace_scale_decisions_total{pool,act}", "Decisions, by act: up, down, overdue."
)

#: Gauges by the names that figures have in HTTP.
GAUGES = {
    "capacity_used": USED,
    "offered_replicas": OFFERED,
    "backlog_s": BACKLOG_S,
    "drain_s": DRAIN,
    "oldest_wait_s": WAIT_S,
    "slack_s": SLACK_S,
    "refused": REFUSED,
    "late": LATE,
    "lag_s": LAG_S,
    "requests_s": REQUESTS,
    "desired": DESIRED,
    "overdue": OVERDUE,
}


def decided(pool: str, act: str) -> None:
    """Counts a decision."""
    DECISIONS.labels(pool, act).inc()


class PoolGauges:
    """Gauges of all pools."""

    def __init__(self) -> None:
        self._tables = {name: GaugeTable(gauge) for name, gauge in GAUGES.items()}
        self._reclaimed = GaugeTable(RECLAIMED)

    def set_reclaimed(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Sets the gauge of spot workers that were reclaimed, by pool and notice."""
        self._reclaimed.set(counts)

    def set(self, figures: Mapping[str, Mapping[str, float | None]]) -> None:
        """Sets the gauges to the figures of each pool, by the names of GAUGES; None: absent."""
        for name, table in self._tables.items():
            values = {(pool,): its.get(name) for pool, its in figures.items()}
            table.set({key: value for key, value in values.items() if value is not None})


def figures(gauge_by: Callable[[str, str], Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Reads them back, by pool. gauge_by: of a ReportSet."""
    found: dict[str, dict[str, float]] = {}
    for name, gauge in GAUGES.items():
        [family] = gauge.describe()
        for pool, value in gauge_by(family.name, "pool").items():
            found.setdefault(pool, {})[name] = value
    return found
