"""Models that need another worker, among those that not all workers have in memory."""

from collections import Counter
from collections.abc import Iterable, Mapping

from jobs.scaling.measure import ModelLoad
from jobs.telemetry.reports.reports import ReportSet

_SETTLED = {"absent", "failed", "ready", "draining"}  # else a worker loads it
_USED = 0.85  # of its workers by calls, above which it needs another
_REFUSED, _LATE = 0.01, 0.05  # shares of its calls, likewise
_LEAST_USED = 0.5  # below it calls are late for another reason than a lack of workers
_LEAST_FREE = 0.1  # share of its workers that items are taken to get
_DRAIN_S = 120.0  # in which the workers that have it should run the items that wait


def candidates(reports: ReportSet) -> dict[str, int]:
    """Returns the ready workers of models that another worker could load, by name@version."""
    states: dict[str, Counter[str]] = {}
    for report in reports.by_kind("worker").reports:
        if report.details.get("state") == "ready":
            for key, model in report.details.get("models", {}).items():
                states.setdefault(key, Counter())[model["state"]] += 1
    return {
        key: its["ready"]
        for key, its in states.items()
        if its["ready"] and its["absent"] and its.keys() <= _SETTLED
    }


def replicas(loads: Iterable[ModelLoad], ready: Mapping[str, int]) -> dict[str, int]:
    """Returns the workers that a model should have, by name@version, for those that should have one
    more. One is added at a time: what loads may be enough. ready: of candidates."""
    return {
        load.key: ready[load.key] + 1
        for load in loads
        if load.key in ready and needs_another(load, ready[load.key])
    }


def needs_another(load: ModelLoad, ready: int) -> bool:
    """Returns True if so many workers are too few for a model's calls, or for its items in time."""
    used = load.offered / ready
    pressed = load.refused_share > _REFUSED or load.late_share > _LATE
    free = max(ready - load.offered, _LEAST_FREE * ready)
    return used > _USED or (pressed and used > _LEAST_USED) or load.backlog_s / free > _DRAIN_S
