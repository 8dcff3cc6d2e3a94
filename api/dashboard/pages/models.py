"""Models: all of them, and one with its curves, its lanes, and how it is used."""

import json
from typing import Annotated, Any

from fastapi import Path, Request, Response

from api.context import Context, Shared
from api.dashboard.auth.viewer import Viewing
from api.dashboard.data import diagnoses, model_stats
from api.dashboard.data.diagnoses import Causes
from api.dashboard.data.telemetry import StatusReporter, TelemetrySnapshot
from api.dashboard.rendering import layout, page_router
from api.schemas.common import NO_NUL
from jobs.errors import NotFound
from jobs.models.model import Model
from jobs.store.queue.workers import NOWHERE

router = page_router.router()

_MOST_LANES = 30
_INPUTS: dict[str, Any] = {
    "embedding": "how do I parse JSON",
    "chat": [{"role": "user", "content": "hello"}],
}


@router.get("/models")
def models(request: Request, shared: Shared, viewer: Viewing, told: StatusReporter) -> Response:
    found = model_stats.rows(shared, model_stats.standing(shared), told.reading)
    return layout.page(request, "models.html", viewer=viewer, models=found)


@router.get("/models/{key}")
def model(
    request: Request,
    shared: Shared,
    viewer: Viewing,
    told: StatusReporter,
    found: Causes,
    key: Annotated[str, Path(max_length=200, pattern=NO_NUL)],
) -> Response:
    """key: name@version, or the name of a model of which there is one."""
    row = _row(shared, told, key)
    detail = viewer.may("operate")
    return layout.page(
        request,
        "model.html",
        viewer=viewer,
        row=row,
        detail=detail,
        causes=diagnoses.about(found, f"model:{row.key}"),
        example=_example(shared, row.model),
        **(_figures(told, row.key) if detail else {}),
    )


def _row(shared: Context, told: TelemetrySnapshot, key: str) -> model_stats.Row:
    found, declared = model_stats.standing(shared), {m.key: m for m in shared.models}
    if "@" not in key:
        key = next((one for one in declared if one.partition("@")[0] == key), key)
    if key not in declared and key not in found:
        raise NotFound(f"there is no model {key}")
    return model_stats.row(key, declared.get(key), found.get(key, NOWHERE), told.reading)


def _figures(told: TelemetrySnapshot, key: str) -> dict[str, Any]:
    now = told.reading
    entries = now.increase_by("millrace_lane_entries_total", "lane", model=key)
    launches = now.increase_by("millrace_lane_launches_total", "lane", model=key)
    waits = now.increase_by("millrace_lane_wait_seconds_total", "lane", model=key)
    return {
        "stages": model_stats.stages(now, model=key),
        "sizes": model_stats.launch_sizes(now, model=key),
        "curves": model_stats.curves(now, key),
        "reasons": now.increase_by("millrace_launches_total", "reason", model=key),
        "outcomes": now.increase_by("millrace_calls_total", "outcome", model=key),
        "items": now.increase_by("millrace_items_total", "outcome", model=key),
        "errors": now.increase_by("millrace_item_errors_total", "code", model=key),
        "lanes": [
            (lane, count, count / launches.get(lane, count), waits.get(lane, 0.0) / count)
            for lane, count in list(entries.items())[:_MOST_LANES]
            if count
        ],
        "more_lanes": max(0, len(entries) - _MOST_LANES),
    }


def _example(shared: Context, model: Model | None) -> str:
    """A call, as a shell takes it."""
    if model is None:
        return ""
    body = json.dumps({"model": model.key, "input": _INPUTS.get(model.effective_task, "…")})
    return (
        f"curl {shared.settings.url}/infer \\\n"
        '  -H "Authorization: Bearer $MILLRACE_API_KEY" \\\n'
        f"  -H 'Content-Type: application/json' \\\n  -d '{body}'"
    )
