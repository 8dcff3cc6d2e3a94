"""Last looks of keepers at open rollouts, by their reports."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends

from api.context import ContextDep
from jobs.telemetry.reports.reports import ReportSet

Looks = Mapping[str, dict[str, Any]]
"""By shown id: `act`, `reason` and `figures` (jobs/rollouts/controller.py)."""


def latest_looks(reports: ReportSet) -> Looks:
    """Returns the look of the keeper that reported last, for each rollout."""
    by_time = sorted(reports.by_kind("keeper").reports, key=lambda report: report.at)
    return {
        id: look for report in by_time for id, look in report.details.get("rollouts", {}).items()
    }


async def _looks(context: ContextDep) -> Looks:
    return latest_looks(await context.reports.read())


LooksDep = Annotated[Looks, Depends(_looks)]
