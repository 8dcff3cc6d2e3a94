"""Overview: figures, health, findings, models, running jobs, workers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import Response

from api.context import Context
from api.dashboard.data import health, model_stats, past
from api.dashboard.data.diagnoses import Causes
from api.dashboard.data.past import Past
from api.dashboard.data.telemetry import Telemetry, TelemetrySnapshot
from api.dashboard.rendering import layout, page_router
from api.schemas.history import HistoryRange
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
from jobs.telemetry.reports.figures import EVERYTHING
from jobs.telemetry.reports.reports import ReportSet
from jobs.views import jobs as views

router = page_router.router()

_MAX_JOBS = 8
_LIVING = ("ready", "loading", "draining")


@dataclass(frozen=True, slots=True)
class Observations:
    """Data from the database."""

    jobs: Sequence[dict[str, Any]] = ()
    workers: Sequence[WorkerRow] = ()
    models: Mapping[str, ModelStatus] = field(default_factory=dict)
    states: Mapping[str, int] | None = None
    took_s: float | None = None  #: duration of the query; None: database unreachable
    past: Past | None = None  #: of everything; for operators


@router.get("/")
async def redirect() -> Response:
    """Redirects to the path without a slash."""
    return layout.redirect(layout.PREFIX)


@router.get("")
async def overview(
    page: layout.ReaderPage, telemetry: Telemetry, causes: Causes, span: past.Span = "24h"
) -> Response:
    """Shows the overview within two seconds, even if the database is stuck.

    It renders on asyncio's threads, as FastAPI's may all be waiting for the database.
    """
    operator = page.may("operate")
    tenant = EVERYBODY if operator else page.caller.tenant
    observe = partial(_observe, page.context, tenant, span)
    found = await page.context.single_flight.run((tenant, span), observe)
    observations = found or Observations()
    if not operator:
        return await asyncio.to_thread(_for_tenant, page, telemetry, causes, observations)
    before = observations.past or past.away(EVERYTHING, span)
    return await asyncio.to_thread(_for_operators, page, telemetry, causes, observations, before)


def _for_operators(
    page: layout.Page,
    telemetry: TelemetrySnapshot,
    causes: list[Diagnosis],
    observations: Observations,
    before: Past,
) -> Response:
    alive = [worker for worker in observations.workers if worker.state in _LIVING]
    states: dict[str, int] | None = None
    if observations.took_s is not None:
        states = {
            state: count
            for state in _LIVING
            if (count := sum(worker.state == state for worker in alive))
        }
    return page.render(
        "overview.html",
        telemetry=telemetry,
        figures=figures(telemetry.reports),
        causes=causes,
        parts=health.parts(page.context, telemetry, states, observations.took_s),
        models=model_stats.rows(page.context, observations.models, telemetry.reports),
        stages=model_stats.stages(telemetry.reports),
        jobs=observations.jobs,
        states=telemetry.reports.gauge_by("millrace_jobs", "state"),
        stuck=telemetry.reports.gauge_by("millrace_jobs_stuck", "model"),
        workers=[(worker, busy_of(telemetry.reports, worker.incarnation)) for worker in alive],
        past=before,
    )


def _for_tenant(
    page: layout.Page,
    telemetry: TelemetrySnapshot,
    causes: list[Diagnosis],
    observations: Observations,
) -> Response:
    """Renders a tenant's own overview."""
    return page.render(
        "overview_tenant.html",
        causes=causes,
        models=model_stats.rows(page.context, observations.models, telemetry.reports),
        jobs=observations.jobs,
        states=observations.states,
        away=observations.took_s is None,
    )


def _observe(context: Context, tenant: str, span: HistoryRange) -> Observations:
    since_s = clock.monotonic()
    try:
        with context.acting(tenant) as tx:
            if tenant == EVERYBODY:
                fleet_rows, states = fleet.page(tx), None
            else:
                fleet_rows, states = (), reading.open_states(tx, tenant)
            models = workers.model_statuses(tx, 2 * context.settings.lease_s)
            took_s = clock.monotonic() - since_s
            jobs = [
                {**views.job_object(row), "tenant": row.tenant_id}
                for row in reading.running(tx, tenant, _MAX_JOBS)
            ]
    except CONNECTION_ERRORS:
        return Observations()
    before = past.load(context, EVERYTHING, span) if tenant == EVERYBODY else None
    return Observations(jobs, fleet_rows, models, states, took_s, before)


def busy_of(reports: ReportSet, incarnation: int) -> float | None:
    """Returns the busy share of a worker's device, 0 to 1; None if it doesn't report."""
    one = reports.by_process(str(incarnation))
    if not one.reports:
        return None
    return min(1.0, one.rate("millrace_device_busy_seconds_total"))


def figures(reports: ReportSet) -> dict[str, Any]:
    """Returns the totals for the tiles."""
    return model_stats.figures(reports) | {
        "failures_s": history.failure_rate(reports),
        "retries_s": reports.rate("millrace_item_retries_total"),
        "queue_calls": reports.gauge_by("millrace_queue_calls", "model"),
        "queue_items": reports.gauge_by("millrace_queue_items", "model"),
        "reasons": reports.increase_by("millrace_launches_total", "reason"),
        "busy": history.device_busy_share(reports),
    }
