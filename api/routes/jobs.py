"""Jobs: list, look, cancel, pause, resume, retry, delete."""

from collections.abc import Callable
from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import RowMapping

from api import audit
from api.auth import Reader, Submitter, require
from api.context import Context, Shared
from api.routes.common import JOB_ID, PREFIXES, TENANT_OR_ALL, JobId, job_of, json_response
from api.schemas import NO_NUL, Job, JobPage
from jobs import ids, views
from jobs.cancel import cancel
from jobs.identity import Caller
from jobs.states import TERMINAL, JobState
from jobs.store import reading, room, spend, verbs
from jobs.store.db import Tx

router = APIRouter(tags=["jobs"])


@router.get("/jobs", response_model=JobPage)
def list_jobs(
    shared: Shared,
    caller: Reader,
    state: JobState | None = None,
    model: Annotated[str | None, Query(max_length=200, pattern=NO_NUL)] = None,
    tenant: Annotated[
        str | None,
        Query(description="for operators: another tenant, or * for all", pattern=TENANT_OR_ALL),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[
        str | None, Query(description="`next` of the page before", pattern=JOB_ID)
    ] = None,
) -> Response:
    """Newest first."""
    name, _, version = (model or "").partition("@")
    whose = _whose(caller, tenant)
    with shared.acting(whose) as tx:
        rows = reading.page(
            tx,
            whose,
            state=state,
            model=name or None,
            version=version or None,
            after=ids.parse(PREFIXES, after) if after else None,
            limit=limit + 1,
        )
    more = ids.show("job", rows[limit - 1]["id"]) if len(rows) > limit else None
    return json_response({"data": [views.job_object(row) for row in rows[:limit]], "next": more})


def _whose(caller: Caller, asked: str | None) -> str:
    if asked in (None, caller.tenant):
        return caller.tenant
    require(caller, "operate")
    return str(asked)


@router.get("/jobs/{job_id}", response_model=Job)
def get_job(shared: Shared, caller: Reader, job_id: JobId) -> Response:
    """The job object, with live counts."""
    with job_of(shared, caller, job_id) as (_, job):
        return json_response(views.job_object(job))


@router.post("/jobs/{job_id}/cancel", response_model=Job)
def cancel_job(request: Request, shared: Shared, caller: Submitter, job_id: JobId) -> Response:
    """Pending items end at once, running ones at the next launch boundary; results are kept. Of a
    very large job the answer may come while it is still `cancelling`."""
    with job_of(shared, caller, job_id) as (_, job):
        tenant = job["tenant_id"]

    def note(tx: Tx, before: str) -> None:
        audit.note(tx, request, caller, "job.cancel", job_id, tenant, was=before)

    cancel(shared.database, job["id"], tenant, note)
    return get_job(shared, caller, job_id)


@router.post("/jobs/{job_id}/pause", response_model=Job)
def pause_job(request: Request, shared: Shared, caller: Submitter, job_id: JobId) -> Response:
    """What runs finishes its launch; nothing more is started. Expiry keeps running."""
    _do(request, shared, caller, job_id, verbs.pause)
    return get_job(shared, caller, job_id)


@router.post("/jobs/{job_id}/resume", response_model=Job)
def resume_job(request: Request, shared: Shared, caller: Submitter, job_id: JobId) -> Response:
    """Goes on with a paused job."""
    _do(request, shared, caller, job_id, verbs.resume)
    return get_job(shared, caller, job_id)


@router.post("/jobs/{job_id}/retry", response_model=Job)
def retry_job(request: Request, shared: Shared, caller: Submitter, job_id: JobId) -> Response:
    """Runs the items of a terminal job that did not succeed again, as a new generation."""
    _do(request, shared, caller, job_id, verbs.retry, partial(_take_anew, caller))
    return get_job(shared, caller, job_id)


def _take_anew(caller: Caller, tx: Tx, job: RowMapping) -> None:
    """That is new work. What operators may queue themselves says nothing of others' jobs."""
    spend.refuse(tx, job["tenant_id"])
    if caller.tenant == job["tenant_id"] and job["state"] in TERMINAL:
        again = job["failed"] + job["cancelled"] + job["expired"]
        room.check(tx, caller.tenant, caller.limits, job["model"], again, 0)


@router.delete("/jobs/{job_id}", status_code=204, response_class=Response)
def delete_job(request: Request, shared: Shared, caller: Submitter, job_id: JobId) -> Response:
    """Removes a terminal job, with all its rows and payloads; 409 while it is open."""
    _do(request, shared, caller, job_id, verbs.delete)
    return Response(status_code=204)


def _do(
    request: Request, shared: Context, caller: Caller, job_id: str,
    verb: Callable[[Tx, UUID, str], str], first: Callable[[Tx, RowMapping], None] | None = None,
) -> None:  # fmt: skip
    with job_of(shared, caller, job_id) as (tx, job):
        tenant = job["tenant_id"]
        if first:
            first(tx, job)
        before = verb(tx, job["id"], tenant)
        audit.note(tx, request, caller, f"job.{verb.__name__}", job_id, tenant, was=before)
