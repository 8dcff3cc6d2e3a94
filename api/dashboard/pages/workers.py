"""Workers: all of them, and one with its models, its launches and its curves; whom to drain."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Request, Response

from api.context import Shared
from api.dashboard.auth.viewer import Form, Operating
from api.dashboard.data import diagnoses, model_stats
from api.dashboard.data.diagnoses import Causes
from api.dashboard.data.telemetry import StatusReporter
from api.dashboard.pages.overview import busy_of
from api.dashboard.rendering import layout, page_router
from api.routes.admin import workers as json_routes
from jobs.store.monitoring import workers as store
from jobs.store.monitoring.workers import WorkerLaunch
from jobs.store.tenancy import EVERYBODY
from jobs.telemetry.reports.reports import Report

router = page_router.router()

_LAUNCHES = 300
_MOST_SHOWN = 20
WorkerId = Annotated[int, Path(ge=1, le=json_routes.MOST_ID)]


@router.get("/workers")
def workers(request: Request, shared: Shared, viewer: Operating, told: StatusReporter) -> Response:
    with shared.acting(EVERYBODY) as tx:
        rows = store.page(tx)
        held = store.held(tx, [row.incarnation for row in rows])
    reports = {report.name: report for report in told.reading.of("worker").reports}
    found: list[dict[str, Any]] = [
        {
            "row": row,
            "held": [one for one in held if one.incarnation == row.incarnation],
            "busy": busy_of(told.reading, row.incarnation),
            "memory": _memory(reports.get(str(row.incarnation))),
            "size": told.reading.one(str(row.incarnation)).mean("millrace_launch_rows"),
        }
        for row in rows
    ]
    alive = [one for one in found if one["row"].state not in ("stopped", "lost")]
    gone = [one for one in found if one not in alive]
    return layout.page(request, "workers.html", viewer=viewer, alive=alive, gone=gone)


@router.get("/workers/{id}")
def worker(
    request: Request,
    shared: Shared,
    viewer: Operating,
    told: StatusReporter,
    found: Causes,
    id: WorkerId,
) -> Response:
    with shared.acting(EVERYBODY) as tx:
        row = json_routes.worker_of(tx, id)
        held = store.held(tx, [id])
        launches = store.launches(tx, [id], _LAUNCHES)
    now = told.reading.one(str(id))
    report = next(iter(now.reports), None)
    models: dict[str, Any] = dict(report.about.get("models", {})) if report else {}
    return layout.page(
        request,
        "worker.html",
        viewer=viewer,
        row=row,
        held=held,
        models=models,
        current=_current(models, report.at if report else 0.0),
        report=report,
        busy=busy_of(told.reading, id),
        memory=_memory(report),
        sizes=model_stats.launch_sizes(now),
        curves={
            key: model_stats.curves(now, key) for key in models if model_stats.curves(now, key)
        },
        launches=launches[:_MOST_SHOWN],
        accuracy=_accuracy(launches),
        causes=diagnoses.about(found, f"worker:{id}"),
    )


@router.post("/workers/{id}/drain")
def drain(
    request: Request, shared: Shared, viewer: Operating, form: Form, id: WorkerId
) -> Response:
    json_routes.ask(request, shared, viewer.caller, id, drain=True)
    return layout.go(f"{layout.PREFIX}/workers/{id}", f"Worker {id} is asked to take no more work.")


@router.post("/workers/{id}/undrain")
def undrain(
    request: Request, shared: Shared, viewer: Operating, form: Form, id: WorkerId
) -> Response:
    json_routes.ask(request, shared, viewer.caller, id, drain=False)
    said = f"Worker {id} is wanted again; another one with a new number takes its place."
    return layout.go(f"{layout.PREFIX}/workers/{id}", said)


def _memory(report: Report | None) -> tuple[float, float] | None:
    """(used, total) bytes of its device."""
    found = report.about.get("memory") if report else None
    return (found["used"], found["total"]) if found else None


def _current(models: dict[str, Any], at: float) -> list[dict[str, Any]]:
    """The launches that it was in when it told, each with its model and its age then."""
    return [
        {**launch, "model": key, "age_s": max(0.0, at - launch["since"])}
        for key, told in models.items()
        for launch in told.get("launches", ())
    ]


def _accuracy(launches: Sequence[WorkerLaunch]) -> dict[str, float]:
    """By how far predictions were off: how many launches took so much of the predicted time."""
    counts = dict.fromkeys(("<50 %", "50–80 %", "80–125 %", "125–200 %", ">200 %"), 0.0)
    for launch in launches:
        if launch.predicted_ms <= 0:
            continue
        ratio = launch.engine_ms / launch.predicted_ms
        ends = (0.5, 0.8, 1.25, 2.0)
        counts[list(counts)[sum(ratio > end for end in ends)]] += 1
    return counts
