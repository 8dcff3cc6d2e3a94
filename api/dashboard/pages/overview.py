"""The first page: what runs, what is stuck, and why."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import Request, Response

from api.context import Context, Shared
from api.dashboard.auth.viewer import Viewer, Viewing
from api.dashboard.data import health, model_stats
from api.dashboard.data.diagnoses import Causes
from api.dashboard.data.single_flight import SingleFlight
from api.dashboard.data.telemetry import StatusReporter, TelemetrySnapshot
from api.dashboard.rendering import layout, page_router
from jobs import clock
from jobs.explain import Diagnosis
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.jobs import read as reading
from jobs.store.monitoring import workers as fleet
from jobs.store.monitoring.workers import WorkerRow
from jobs.store.queue import workers
from jobs.store.queue.workers import ModelStatus
from jobs.store.tenancy import EVERYBODY
from jobs.telemetry.reports import history
from jobs.telemetry.reports.reports import Reading
from jobs.views import jobs as views

router = page_router.router()

_MOST_JOBS = 8
_LIVING = ("ready", "loading", "draining")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the database says; took_s: how long it took, None: it is away."""

    jobs: Sequence[dict[str, Any]] = ()
    workers: Sequence[WorkerRow] = ()
    models: Mapping[str, ModelStatus] = field(default_factory=dict)
    states: Mapping[str, int] | None = None
    took_s: float | None = None


@router.get("/")
async def the_same() -> Response:
    return layout.go(layout.PREFIX)


@router.get("")
async def overview(
    request: Request, shared: Shared, viewer: Viewing, told: StatusReporter, found: Causes
) -> Response:
    """Shown within a second or two, whatever the database does. Rendered on a thread that nothing
    else holds: those of FastAPI may all be waiting for it."""
    operator = viewer.may("operate")
    whose = EVERYBODY if operator else viewer.caller.tenant
    patience: SingleFlight = request.app.state.patience
    seen = await patience.ask(whose, partial(_seen, shared, whose)) or Seen()
    show = _of_everybody if operator else _of_tenant
    return await asyncio.to_thread(show, request, shared, viewer, told, found, seen)


def _of_everybody(
    request: Request, shared: Context, viewer: Viewer,
    told: TelemetrySnapshot, found: list[Diagnosis],
    seen: Seen,
) -> Response:  # fmt: skip
    alive = [worker for worker in seen.workers if worker.state in _LIVING]
    states: dict[str, int] | None = None
    if seen.took_s is not None:
        states = {
            state: count
            for state in _LIVING
            if (count := sum(worker.state == state for worker in alive))
        }
    return layout.page(
        request,
        "overview.html",
        viewer=viewer,
        told=told,
        figures=figures(told),
        causes=found,
        parts=health.parts(shared, told, states, seen.took_s),
        models=model_stats.rows(shared, seen.models, told.reading),
        stages=model_stats.stages(told.reading),
        jobs=seen.jobs,
        states=told.reading.gauge_by("millrace_jobs", "state"),
        stuck=told.reading.gauge_by("millrace_jobs_stuck", "model"),
        workers=[(worker, busy_of(told.reading, worker.incarnation)) for worker in alive],
    )


def _of_tenant(
    request: Request, shared: Context, viewer: Viewer,
    told: TelemetrySnapshot, found: list[Diagnosis],
    seen: Seen,
) -> Response:  # fmt: skip
    """A tenant's own: nothing of others shows."""
    return layout.page(
        request,
        "overview_tenant.html",
        viewer=viewer,
        causes=found,
        models=model_stats.rows(shared, seen.models, told.reading),
        jobs=seen.jobs,
        states=seen.states,
        away=seen.took_s is None,
    )


def _seen(shared: Context, whose: str) -> Seen:
    since_s = clock.monotonic()
    try:
        with shared.acting(whose) as tx:
            if whose == EVERYBODY:
                found, states = fleet.page(tx), None
            else:
                found, states = (), reading.open_states(tx, whose)
            models = workers.model_statuses(tx, 2 * shared.settings.lease_s)
            took_s = clock.monotonic() - since_s
            jobs = [
                {**views.job_object(row), "tenant": row.tenant_id}
                for row in reading.running(tx, whose, _MOST_JOBS)
            ]
    except CONNECTION_ERRORS:
        return Seen()
    return Seen(jobs, found, models, states, took_s)


def busy_of(reading: Reading, incarnation: int) -> float | None:
    """Of one worker's device; None: it hasn't told."""
    one = reading.one(str(incarnation))
    if not one.reports:
        return None
    return min(1.0, one.rate("millrace_device_busy_seconds_total"))


def figures(told: TelemetrySnapshot) -> dict[str, Any]:
    """Of everything together, for the tiles."""
    now = told.reading
    units = now.increase("millrace_launch_units_total")
    padded = now.increase("millrace_launch_padded_units_total")
    met = now.increase_by("millrace_call_target_total", "met")
    return {
        "calls_s": now.rate("millrace_calls_total"),
        "items_s": now.rate("millrace_items_total"),
        "failures_s": history.failures_s(now),
        "retries_s": now.rate("millrace_item_retries_total"),
        "queue_calls": now.gauge_by("millrace_queue_calls", "model"),
        "queue_items": now.gauge_by("millrace_queue_items", "model"),
        "oldest_s": now.gauge("millrace_queue_oldest_seconds"),
        "drain_s": now.gauge("millrace_predicted_drain_seconds"),
        "rows": now.mean("millrace_launch_rows"),
        "fill": now.mean("millrace_launch_fill_ratio"),
        "padding": 1 - units / padded if padded else None,
        "launches_s": now.rate("millrace_launches_total"),
        "reasons": now.increase_by("millrace_launches_total", "reason"),
        "busy": history.busy(now),
        "p50_s": now.quantile("millrace_call_seconds", 0.5),
        "p99_s": now.quantile("millrace_call_seconds", 0.99),
        "missed": 1 - met.get("true", 0.0) / sum(met.values()) if met else None,
    }
