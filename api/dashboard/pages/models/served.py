"""Pages of models: all of them, and one with its curves and lanes."""

from typing import Annotated, Any

from fastapi import Depends, Path, Response

from api.context import Context
from api.dashboard.data import diagnoses, model_stats, past
from api.dashboard.data.diagnoses import Causes
from api.dashboard.data.telemetry import Telemetry, TelemetrySnapshot
from api.dashboard.forms import call_code
from api.dashboard.forms.examples import example_input
from api.dashboard.pages.models import registry
from api.dashboard.rendering import layout, page_router
from api.routes.admin import models as json_routes
from api.schemas.common import NO_NUL
from jobs.errors import NotFound
from jobs.explain.generation import Generation
from jobs.models.model import Model
from jobs.store.queue.workers import NOWHERE
from jobs.views.registry import Copies

router = page_router.router()

_MAX_LANES = 30
_Key = Annotated[str, Path(max_length=200, pattern=NO_NUL)]


@router.get("/models")
def models(page: layout.ReaderPage, telemetry: Telemetry) -> Response:
    """Lists models."""
    statuses = model_stats.statuses(page.context)
    rows = model_stats.rows(page.context, statuses, telemetry.reports)
    return page.render("models.html", models=rows)


async def _copies(page: layout.ReaderPage, key: _Key) -> Copies:
    if "@" in key or not page.may("operate"):
        return {}
    return await json_routes.copies_of(page.context, key)


@router.get("/models/{key}")
def model(
    page: layout.ReaderPage,
    telemetry: Telemetry,
    causes: Causes,
    copies: Annotated[Copies, Depends(_copies)],
    key: _Key,
    span: past.Span = "24h",
) -> Response:
    """Shows a version; `key`: name@version. By its bare name, shows all versions of a model."""
    if "@" not in key:
        return registry.show(page, telemetry, causes, key, copies)
    row = _row(page.context, telemetry, key)
    detail = page.may("operate")
    return page.render(
        "model.html",
        row=row,
        detail=detail,
        causes=diagnoses.of_subject(causes, f"model:{row.key}"),
        example=_example(page.context, row.model),
        adapters=list(page.context.models_of(page.caller.tenant).adapters_of(row.key)),
        **(_figures(telemetry, row.key) if detail else {}),
        **({"past": past.load(page.context, f"model:{row.key}", span)} if detail else {}),
    )


def _row(context: Context, telemetry: TelemetrySnapshot, key: str) -> model_stats.Row:
    statuses, declared = model_stats.statuses(context), {m.key for m in context.models}
    if key not in declared and key not in statuses:
        raise NotFound(f"there is no model {key}")
    return model_stats.row(context, key, statuses.get(key, NOWHERE), telemetry.reports)


def _figures(telemetry: TelemetrySnapshot, key: str) -> dict[str, Any]:
    now = telemetry.reports
    entries = now.increase_by("millrace_lane_entries_total", "lane", model=key)
    launches = now.increase_by("millrace_lane_launches_total", "lane", model=key)
    waits = now.increase_by("millrace_lane_wait_seconds_total", "lane", model=key)
    return {
        "stages": model_stats.stages(now, model=key),
        "sizes": model_stats.launch_sizes(now, model=key),
        "tokens": model_stats.tokens(now, key),
        "kv_cache": model_stats.kv_cache(now, key),
        "generation": Generation.from_reports(now, key),
        "curves": model_stats.curves(now, key),
        "reasons": now.increase_by("millrace_launches_total", "reason", model=key),
        "outcomes": now.increase_by("millrace_calls_total", "outcome", model=key),
        "items": now.increase_by("millrace_items_total", "outcome", model=key),
        "errors": now.increase_by("millrace_item_errors_total", "code", model=key),
        "lanes": [
            (lane, count, count / launches.get(lane, count), waits.get(lane, 0.0) / count)
            for lane, count in list(entries.items())[:_MAX_LANES]
            if count
        ],
        "more_lanes": max(0, len(entries) - _MAX_LANES),
    }


def _example(context: Context, model: Model | None) -> str:
    """Returns a call as a shell command."""
    if model is None:
        return ""
    body = {"model": model.key, "input": example_input(model)}
    return call_code.curl(context.settings.url, body)
