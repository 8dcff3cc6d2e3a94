"""Jobs: submit, list, look, read, cancel, pause, resume."""

from collections.abc import Callable
from typing import IO, Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import ValidationError
from sqlalchemy import RowMapping

from api import bodies
from api.context import Context, Shared, Tenant
from api.errors import faults_of
from api.schemas import NO_NUL, ItemState, Job, JobPage, JobRequest
from jobs import ids, items, views
from jobs.errors import Fault, Invalid, Malformed, NotFound
from jobs.intake import bounded_lines
from jobs.states import JobState, Outcome
from jobs.store import reading, verbs
from jobs.store.db import Tx
from jobs.submit import Order, submit

router = APIRouter(tags=["jobs"])

_MIB = 1 << 20
_JSON_PARAMETERS = ("params", "metadata")
_JOB_ID = "^job_[0-7][0-9a-hjkmnp-tv-z]{25}$"
_JobId = Annotated[str, Path(description="job_…", pattern=_JOB_ID)]
_Limit = Annotated[int | None, Query(ge=1, le=100_000_000)]

_SUBMIT_DOC: dict[str, Any] = {
    "parameters": [
        {
            "name": name,
            "in": "query",
            "description": f"with an NDJSON body: {field.description or 'as in the JSON body'}",
            "schema": {"type": "string"},
        }
        for name, field in ((f.alias or name, f) for name, f in JobRequest.model_fields.items())
    ],
    "requestBody": {
        "required": True,
        "content": {
            bodies.JSON: {"schema": {"$ref": "#/components/schemas/JobWithItems"}},
            bodies.NDJSON: {"schema": {"type": "string", "description": "one item a line"}},
        },
    },
}


@router.post("/jobs", status_code=202, response_model=Job, openapi_extra=_SUBMIT_DOC)
async def submit_job(request: Request, shared: Shared, tenant: Tenant) -> Response:
    """Stores a job; 202 once it is committed. Body: a JSON object with `items`, or NDJSON, one
    item a line, with everything else as query parameters (objects as JSON)."""
    kind = bodies.media_type(request, bodies.JSON, bodies.NDJSON)
    if "idempotency-key" in request.headers:
        raise Malformed("Idempotency-Key is not supported yet; send the request without it")
    settings = shared.settings
    ndjson = kind == bodies.NDJSON
    most = settings.max_ndjson_mb if ndjson else settings.max_json_mb
    async with bodies.spooled(request, most * _MIB) as body:
        take = _submit_ndjson if ndjson else _submit_json
        query = dict(request.query_params)
        return await run_in_threadpool(take, shared, tenant, query, body)


def _submit_json(shared: Context, tenant: str, query: dict[str, str], body: IO[bytes]) -> Response:
    fields = items.parse_json(body.read())
    if not isinstance(fields, dict):
        raise Malformed("the body must be a JSON object")
    array = fields.pop("items", [])
    faults = []
    if not isinstance(array, list):
        faults.append(Fault(("items",), "type", "items must be an array"))
        array = []
    return _store(shared, tenant, fields, faults, array=array)


def _submit_ndjson(
    shared: Context, tenant: str, query: dict[str, str], body: IO[bytes]
) -> Response:
    faults = []
    fields: dict[str, Any] = dict(query)
    for name in _JSON_PARAMETERS:
        if name in fields:
            try:
                fields[name] = orjson.loads(fields[name])
            except orjson.JSONDecodeError as error:
                faults.append(Fault((name,), "malformed", f"not valid JSON: {error}"))
                del fields[name]
    for name, kind in (("priority", int), ("expires_in_s", _seconds)):
        if name in fields:
            try:
                fields[name] = kind(fields[name])
            except ValueError:
                faults.append(Fault((name,), "type", "must be a number"))
                del fields[name]
    return _store(shared, tenant, fields, faults, lines=body)


def _seconds(text: str) -> float | None:
    return None if text == "null" else float(text)


def _store(
    shared: Context,
    tenant: str,
    fields: dict[str, Any],
    faults: list[Fault],
    *,
    lines: IO[bytes] | None = None,
    **source: Any,
) -> Response:
    order = Order(model=str(fields.get("model")))
    try:
        asked = JobRequest.model_validate(fields)
        order = Order(**{name: getattr(asked, name) for name in Order.__slots__})
    except ValidationError as error:
        faults += faults_of(error.errors(include_url=False))
    if any(fault.loc[:1] == ("model",) for fault in faults):
        raise Invalid("the model is missing or no name", faults=faults)
    if lines is not None:
        most_bytes = shared.models.resolve(order.model).max_line_bytes
        source["lines"] = bounded_lines(lines, most_bytes)
    row = submit(
        shared.database,
        shared.models,
        tenant,
        order,
        faults=faults,
        max_items=shared.settings.max_items,
        **source,
    )
    location = {"Location": f"/jobs/{ids.show('job', row['id'])}"}
    return _json(views.job_object(row), 202, location)


@router.get("/jobs", response_model=JobPage)
def list_jobs(
    shared: Shared,
    tenant: Tenant,
    state: JobState | None = None,
    model: Annotated[str | None, Query(max_length=200, pattern=NO_NUL)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[
        str | None, Query(description="`next` of the page before", pattern=_JOB_ID)
    ] = None,
) -> Response:
    """Newest first."""
    name, _, version = (model or "").partition("@")
    with shared.database.connect() as tx:
        rows = reading.page(
            tx,
            tenant,
            state=state,
            model=name or None,
            version=version or None,
            after=ids.parse("job", after) if after else None,
            limit=limit + 1,
        )
    more = ids.show("job", rows[limit - 1]["id"]) if len(rows) > limit else None
    return _json({"data": [views.job_object(row) for row in rows[:limit]], "next": more})


@router.get("/jobs/{job_id}", response_model=Job)
def get_job(shared: Shared, tenant: Tenant, job_id: _JobId) -> Response:
    """The job object, with live counts."""
    with shared.database.connect() as tx:
        return _json(views.job_object(_job(tx, tenant, job_id)))


@router.get(
    "/jobs/{job_id}/results",
    response_class=StreamingResponse,
    responses={200: {"content": {bodies.NDJSON: {"schema": {"type": "string"}}}}},
)
def get_results(
    shared: Shared,
    tenant: Tenant,
    job_id: _JobId,
    after: Annotated[int, Query(ge=-1, le=2**31 - 1, description="a seq, exclusive")] = -1,
    limit: _Limit = None,
    outcome: Outcome | None = None,
    gaps: bool = False,
) -> Response:
    """NDJSON in seq order, also while the job runs: up to the first gap, or past gaps with
    `gaps=true`. X-Next-After: the last seq that this answer covers, to go on from; X-Complete:
    whether nothing comes after it, now or later."""
    with shared.database.connect() as tx:
        job = _job(tx, tenant, job_id)
        span = reading.span(
            tx, job["id"], job["total"], after=after, gaps=gaps, outcome=outcome, limit=limit
        )
    headers = {"X-Next-After": str(span.until), "X-Complete": str(span.complete).lower()}
    unit = shared.models.unit(job["model"], job["version"])
    lines = reading.result_lines(shared.database, job, span, unit, outcome)
    return StreamingResponse(lines, headers=headers, media_type=bodies.NDJSON)


@router.get("/jobs/{job_id}/items/{seq}", response_model=ItemState)
def get_item(
    shared: Shared, tenant: Tenant, job_id: _JobId, seq: Annotated[int, Path(ge=0, le=2**31 - 1)]
) -> Response:
    """One item: its input, its end, and the launch that it was in."""
    with shared.database.connect() as tx:
        job = _job(tx, tenant, job_id)
        row = reading.item(tx, job["id"], seq)
    if row is None:
        raise NotFound(f"{job_id} has {job['total']} items; {seq} is none of them")
    unit = shared.models.unit(job["model"], job["version"])
    return _json(views.item_object(row, unit))


@router.post("/jobs/{job_id}/cancel", response_model=Job)
def cancel_job(shared: Shared, tenant: Tenant, job_id: _JobId) -> Response:
    """Pending items end at once, running ones at the next launch boundary; results are kept."""
    return _verb(shared, tenant, job_id, verbs.cancel)


@router.post("/jobs/{job_id}/pause", response_model=Job)
def pause_job(shared: Shared, tenant: Tenant, job_id: _JobId) -> Response:
    """What runs finishes its launch; nothing more is started. Expiry keeps running."""
    return _verb(shared, tenant, job_id, verbs.pause)


@router.post("/jobs/{job_id}/resume", response_model=Job)
def resume_job(shared: Shared, tenant: Tenant, job_id: _JobId) -> Response:
    """Goes on with a paused job."""
    return _verb(shared, tenant, job_id, verbs.resume)


@router.post("/jobs/{job_id}/retry", response_model=Job)
def retry_job(shared: Shared, tenant: Tenant, job_id: _JobId) -> Response:
    """Runs the items of a terminal job that did not succeed again, as a new generation."""
    return _verb(shared, tenant, job_id, verbs.retry)


def _verb(shared: Context, tenant: str, job_id: str, verb: Callable[[Tx, UUID], str]) -> Response:
    with shared.database.begin() as tx:
        job = _job(tx, tenant, job_id)
        verb(tx, job["id"])
    with shared.database.connect() as tx:
        return _json(views.job_object(_job(tx, tenant, job_id)))


def _job(tx: Tx, tenant: str, job_id: str) -> RowMapping:
    id = ids.parse("job", job_id)
    row = reading.get(tx, tenant, id) if id else None
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    return row


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, media_type=bodies.JSON)
