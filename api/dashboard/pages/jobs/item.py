"""Page of one item: input, output, timing, attempts."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

import orjson
from fastapi import Path, Response

from api.dashboard.rendering import layout, page_router
from api.routes.jobs.lookup import JobId, find_job
from api.routes.jobs.results import item_detail
from jobs import vectors
from jobs.blobs.payloads import REFERENCE_MARK
from jobs.store.jobs import detail
from jobs.store.jobs.detail import ListedItem
from jobs.store.jobs.read import TRACEBACK
from jobs.views import jobs

router = page_router.router()
MOST_SHOWN = 20_000  # characters of an input or output; the rest can be downloaded

_Seq = Annotated[int, Path(ge=0, le=2**31 - 1)]


@router.get("/jobs/{job_id}/items/{seq}")
def show_item(page: layout.ReaderPage, job_id: JobId, seq: _Seq) -> Response:
    """Shows an item."""
    item = item_detail(*page.arguments, job_id, seq)
    with find_job(page.context, page.caller, job_id) as (tx, row):
        attempts = detail.attempts(tx, row.tenant_id, row.id, seq)
    return page.render(
        "item.html", row=row, job=jobs.job_object(row), item=item, input=pretty(item["input"]),
        output=pretty(item["output"]), params=pretty(item["params"]), most_shown=MOST_SHOWN,
        traceback=(item["error"] or {}).get(TRACEBACK, ""),
        attempts=[{**asdict(one), "error": orjson.loads(one.error)} for one in attempts],
    )  # fmt: skip


@router.get("/jobs/{job_id}/items/{seq}/{side}")
def download(
    page: layout.ReaderPage, job_id: JobId, seq: _Seq,
    side: Annotated[Literal["input", "output"], Path()],
) -> Response:  # fmt: skip
    """Sends the whole input or output as JSON."""
    value = item_detail(*page.arguments, job_id, seq)[side]
    name = f"{job_id}-{seq}-{side}.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(orjson.dumps(value), headers=headers, media_type="application/json")


def pretty(value: Any) -> str:
    """Formats a value as indented JSON."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def summary(row: ListedItem) -> dict[str, Any]:
    """Returns the row of an item for lists, with parsed error and state."""
    waits = "running" if row.slice_state == "leased" else "pending"
    return {
        **asdict(row),
        "state": row.outcome or waits,
        "input": _excerpt(row.input),
        "output": _excerpt(row.output),
        "error": orjson.loads(row.error) if row.error else None,
    }


def _excerpt(text: str | None) -> str:
    if text and text.startswith(REFERENCE_MARK):
        return "(large: in the blob store)"
    if text and text.startswith(vectors.MARK):
        return vectors.as_json(text).decode()
    return text or ""
