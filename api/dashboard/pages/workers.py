"""Pages of workers: all of them, and one with its models, launches and curves."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Path, Response

from api.dashboard.auth.viewer import Form
from api.dashboard.data import diagnoses, gpus, model_stats, past
from api.dashboard.data.diagnoses import Causes
from api.dashboard.data.telemetry import Telemetry
from api.dashboard.pages.overview import busy_of
from api.dashboard.rendering import layout, page_router
from api.routes.admin import workers as json_routes
from jobs.store.monitoring import workers as store
from jobs.store.queue.workers import LaunchRow
from jobs.store.tenancy import EVERYBODY
from jobs.telemetry.reports.reports import Report

router = page_router.router()

_LAUNCHES = 300
_MAX_SHOWN = 20
WorkerId = Annotated[int, Path(ge=1, le=json_routes.MAX_WORKER_ID)]


@router.get("/workers")
def workers(page: layout.OperatorPage, telemetry: Telemetry) -> Response:
    """Lists workers."""
    with page.context.acting(EVERYBODY) as tx:
        rows = store.page(tx)
        held = store.held(tx, [row.incarnation for row in rows])
    reports = {report.name: report for report in telemetry.reports.by_kind("worker").reports}
    listed: list[dict[str, Any]] = [
        {
            "row": row,
            "held": [one for one in held if one.incarnation == row.incarnation],
            "busy": busy_of(telemetry.reports, row.incarnation),
            "gpu": gpus.of_worker(telemetry.reports, row.incarnation),
            "memory": _memory(reports.get(str(row.incarnation))),
            "kind": _kind(reports.get(str(row.incarnation)), row.spot_notice_s),
            "size": telemetry.reports.by_process(str(row.incarnation)).mean("millrace_launch_rows"),
        }
        for row in rows
    ]
    alive = [one for one in listed if one["row"].state not in ("stopped", "lost")]
    ended = [one for one in listed if one not in alive]
    return page.render("workers.html", alive=alive, ended=ended)


@router.get("/workers/{id}")
def worker(
    page: layout.OperatorPage,
    telemetry: Telemetry,
    causes: Causes,
    id: WorkerId,
    span: past.Span = "24h",
) -> Response:
    """Shows a worker."""
    with page.context.acting(EVERYBODY) as tx:
        row = json_routes.worker_of(tx, id)
        held = store.held(tx, [id])
        launches = store.launches(tx, [id], _LAUNCHES)
    now = telemetry.reports.by_process(str(id))
    report = next(iter(now.reports), None)
    models: dict[str, Any] = dict(report.details.get("models", {})) if report else {}
    return page.render(
        "worker.html",
        row=row,
        held=held,
        models=models,
        current=_current(models, report.at if report else 0.0),
        report=report,
        busy=busy_of(telemetry.reports, id),
        gpu=gpus.of_worker(telemetry.reports, id),
        memory=_memory(report),
        kind=_kind(report, row.spot_notice_s),
        sizes=model_stats.launch_sizes(now),
        curves={
            key: model_stats.curves(now, key) for key in models if model_stats.curves(now, key)
        },
        launches=launches[:_MAX_SHOWN],
        accuracy=_accuracy(launches),
        causes=diagnoses.of_subject(causes, f"worker:{id}"),
        past=past.load(page.context, f"worker:{id}", span),
    )


@router.post("/workers/{id}/{verb}")
def do(
    page: layout.OperatorPage, form: Form, id: WorkerId, verb: Literal["drain", "undrain"]
) -> Response:
    """Drains a worker, or resumes a drained one."""
    json_routes.set_draining(*page.arguments, id, drain=verb == "drain")
    notice = f"Worker {id} is resumed; a process with a new number takes its place."
    if verb == "drain":
        notice = f"Worker {id} is being drained: it takes no more work."
    return layout.redirect(f"{layout.PREFIX}/workers/{id}", notice)


def _memory(report: Report | None) -> tuple[float, float] | None:
    """Returns (used, total) bytes of its device."""
    memory = report.details.get("memory") if report else None
    return (memory["used"], memory["total"]) if memory else None


def _current(models: dict[str, Any], at: float) -> list[dict[str, Any]]:
    """Returns the launches in flight at its last report, with model and age."""
    return [
        {**launch, "model": key, "age_s": max(0.0, at - launch["since"])}
        for key, model in models.items()
        for launch in model.get("launches", ())
    ]


def _accuracy(launches: Sequence[LaunchRow]) -> dict[str, float]:
    """Returns the number of launches by actual over predicted time."""
    counts = dict.fromkeys(("<50 %", "50–80 %", "80–125 %", "125–200 %", ">200 %"), 0.0)
    for launch in launches:
        if launch.predicted_ms <= 0:
            continue
        ratio = launch.engine_ms / launch.predicted_ms
        ends = (0.5, 0.8, 1.25, 2.0)
        counts[list(counts)[sum(ratio > end for end in ends)]] += 1
    return counts


def _kind(report: Report | None, spot_notice_s: float) -> str:
    """Describes its device, its price and its notice, where they are known and say something."""
    told = report.details if report else {}
    kind, price = str(told.get("kind", "")), float(told.get("price", 1.0))
    known = "" if kind == told.get("device") else kind
    spot = f"spot, {spot_notice_s:g} s" if spot_notice_s else ""
    return ", ".join(filter(None, (known, f"price {price:g}" if price != 1.0 else "", spot)))
