"""Routes of jobs: list, get, cancel, pause, resume, retry, delete."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.auth.audit import payload_reads
from api.context import Context, ContextDep
from api.dependencies import Reader, Submitter, require
from api.http.responses import json_response
from api.routes.jobs import verbs
from api.routes.jobs.lookup import (
    JOB_ID,
    PREFIXES,
    TENANT_OR_ALL,
    JobId,
    find_job,
    parse_labels,
    read_job,
)
from api.schemas.common import MAX_LABELS, MAX_NAME, NO_NUL, Label
from api.schemas.jobs import Job, JobPage
from jobs import ids
from jobs.identity import Caller
from jobs.states import JobState
from jobs.store.jobs import search
from jobs.store.jobs.search import Filter
from jobs.views import jobs

router = APIRouter(tags=["jobs"])


@router.get("/jobs", response_model=JobPage)
def list_jobs(
    request: Request,
    context: ContextDep,
    caller: Reader,
    state: JobState | None = None,
    model: Annotated[str | None, Query(max_length=200, pattern=NO_NUL)] = None,
    name: Annotated[
        str | None,
        Query(max_length=MAX_NAME, pattern=NO_NUL, description="part of the name, in any case"),
    ] = None,
    label: Annotated[
        list[Label] | None,
        Query(max_length=MAX_LABELS, description="`key:value`, repeated: jobs that have them all"),
    ] = None,
    tenant: Annotated[
        str | None,
        Query(description="operators only: another tenant, or * for all", pattern=TENANT_OR_ALL),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[
        str | None, Query(description="`next` of the page before", pattern=JOB_ID)
    ] = None,
) -> Response:
    """Lists jobs, newest first."""
    model_name, _, version = (model or "").partition("@")
    target_tenant = _target_tenant(caller, tenant)
    with context.acting(target_tenant) as tx:
        filter = Filter(
            states=(state,) if state else (),
            model=model_name,
            version=version,
            name=name or "",
            labels=parse_labels(label or ()),
        )
        last = ids.parse(PREFIXES, after) if after else None
        rows = search.page(tx, target_tenant, filter, after=last, limit=limit + 1)
        if target_tenant != caller.tenant:
            payload_reads.record(tx, request, caller, "jobs", target_tenant)
    more = ids.show("job", rows[limit - 1].id) if len(rows) > limit else None
    return json_response({"data": [jobs.job_object(row) for row in rows[:limit]], "next": more})


def _target_tenant(caller: Caller, requested: str | None) -> str:
    if requested in (None, caller.tenant):
        return caller.tenant
    require(caller, "operate")
    return str(requested)


@router.get("/jobs/{job_id}", response_model=Job)
def get_job(request: Request, context: ContextDep, caller: Reader, job_id: JobId) -> Response:
    """Returns the job object, with live counts."""
    with read_job(request, context, caller, job_id) as (_, job):
        return json_response(jobs.job_object(job))


def _current_job(context: Context, caller: Caller, job_id: str) -> Response:
    """Returns the job object after a verb, which is in the audit log itself."""
    with find_job(context, caller, job_id) as (_, job):
        return json_response(jobs.job_object(job))


@router.post("/jobs/{job_id}/cancel", response_model=Job)
def cancel_job(request: Request, context: ContextDep, caller: Submitter, job_id: JobId) -> Response:
    """Cancels a job: pending items end at once, running ones at the next launch boundary; results
    are kept. A very large job may still be `cancelling` in the response."""
    verbs.perform(request, context, caller, "cancel", job_id)
    return _current_job(context, caller, job_id)


@router.post("/jobs/{job_id}/pause", response_model=Job)
def pause_job(request: Request, context: ContextDep, caller: Submitter, job_id: JobId) -> Response:
    """Pauses a job: running items finish their launch, no other starts. Expiry keeps running."""
    verbs.perform(request, context, caller, "pause", job_id)
    return _current_job(context, caller, job_id)


@router.post("/jobs/{job_id}/resume", response_model=Job)
def resume_job(request: Request, context: ContextDep, caller: Submitter, job_id: JobId) -> Response:
    """Resumes a paused job."""
    verbs.perform(request, context, caller, "resume", job_id)
    return _current_job(context, caller, job_id)


@router.post("/jobs/{job_id}/retry", response_model=Job)
def retry_job(request: Request, context: ContextDep, caller: Submitter, job_id: JobId) -> Response:
    """Runs the items of a terminal job that did not succeed again, as a new generation."""
    verbs.perform(request, context, caller, "retry", job_id)
    return _current_job(context, caller, job_id)


@router.delete("/jobs/{job_id}", status_code=204, response_class=Response)
def delete_job(request: Request, context: ContextDep, caller: Submitter, job_id: JobId) -> Response:
    """Deletes a terminal job with all its rows and payloads; 409 while it is open."""
    verbs.perform(request, context, caller, "delete", job_id)
    return Response(status_code=204)
