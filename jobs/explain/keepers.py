"""Figures of the keepers, over the last minute."""

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.telemetry.reports.reports import ReportSet


@dataclass(frozen=True, slots=True)
class KeeperFacts:
    """Figures of the keepers."""

    count: int  #: keepers that report
    runs: Mapping[str, float]  #: by service
    failed: Mapping[str, float]  #: failed runs by service


def keepers(reports: ReportSet) -> KeeperFacts:
    """Reads the figures of all keepers."""
    runs = "millrace_keeper_runs_total"
    return KeeperFacts(
        count=len(reports.by_kind("keeper").reports),
        runs=reports.increase_by(runs, "service"),
        failed=reports.increase_by(runs, "service", outcome="failed"),
    )
