"""Why: of a call, a job, a model, of everything."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.concurrency import run_in_threadpool

from api.context import Context, Shared
from api.dependencies import Operator, Reader
from api.http.responses import json_response
from api.routes.jobs.lookup import JobId, before_of, find_job
from api.schemas import examples
from api.schemas.calls import EndedCall
from api.schemas.fleet import Explanation
from jobs import ids
from jobs.calls.records import KEPT_S, CallRecord
from jobs.errors import NotFound
from jobs.explain.calls import explain_call
from jobs.explain.diagnosis import Diagnosis, most_severe_first, visible_to_tenants
from jobs.explain.jobs import explain_job
from jobs.identity import Caller
from jobs.states import TERMINAL
from jobs.store.monitoring import diagnostics
from jobs.views.jobs import timestamp

router = APIRouter(tags=["why"])
_EVERYBODYS = frozenset({"api", "database", "redis", "reports"})
"""Parts of the platform that every model stands on."""

CallId = Annotated[
    str,
    Path(description="call_…", pattern=ids.pattern("call"), examples=[examples.CALL_ID]),
]
ModelName = Annotated[
    str, Path(description="name, or name@version", max_length=200, examples=[examples.MODEL])
]


@router.get("/why", response_model=Explanation)
async def why_everything(shared: Shared, caller: Operator) -> Response:
    """Every cause of trouble that the last minute shows, with its figures, the most severe first.
    No word: everything does what it should."""
    return _explained("everything", await shared.explainer.diagnoses())


@router.get("/models/{model}/why", response_model=Explanation)
async def why_model(shared: Shared, caller: Reader, model: ModelName) -> Response:
    """What a model suffers from now, and what every model does. Of a bare name: all its versions.
    Only operators are told what says something of other tenants."""
    keys = [found.key for found in shared.models.versions(model)]
    found = await _concerning(shared, caller, keys)
    return _explained(f"model:{keys[0] if len(keys) == 1 else model}", found)


@router.get("/jobs/{job_id}/why", response_model=Explanation)
async def why_job(shared: Shared, caller: Reader, job_id: JobId) -> Response:
    """Where a job stands and what it waits for; while it is open, what its model suffers from."""
    return _explained(f"job:{job_id}", await of_job(shared, caller, job_id))


async def of_job(shared: Context, caller: Caller, job_id: str) -> list[Diagnosis]:
    """The most severe first. Raises NotFound."""
    key, found = await run_in_threadpool(_why_job, shared, caller, job_id)
    if key:
        found += await _concerning(shared, caller, [key])
    return most_severe_first(found)


@router.get("/calls/{call_id}", response_model=EndedCall)
async def get_call(shared: Shared, caller: Reader, call_id: CallId) -> Response:
    """What is kept of a call that ended within the last hour, and where its time went. Of many
    calls a second, those that failed and the slowest are kept."""
    if not shared.settings.metrics:
        raise NotFound("nothing is kept of calls: MILLRACE_METRICS is off")
    record = await shared.records.find(call_id)
    if record is None or not (record.tenant == caller.tenant or caller.may("operate")):
        raise NotFound(
            f"nothing is kept of {call_id}: it hasn't ended, ended more than "
            f"{KEPT_S // 3600} hour ago, or was one of so many that only the slowest and those "
            "that failed are kept"
        )
    return json_response(_shown(record))


def _why_job(shared: Context, caller: Caller, job_id: str) -> tuple[str, list[Diagnosis]]:
    """The model of an open job, and what is to be said of the job by itself."""
    with find_job(shared, caller, job_id) as (tx, job):
        slices = diagnostics.slice_counts(tx, job.id, job.tenant_id)
        errors = diagnostics.error_counts(tx, job.id, job.tenant_id)
        before = before_of(tx, caller, job)
    found = explain_job(job, slices, errors, before)
    return "" if job.state in TERMINAL else f"{job.model}@{job.version}", found


async def _concerning(shared: Context, caller: Caller, keys: Iterable[str]) -> list[Diagnosis]:
    """What concerns one of these models (name@version), as far as the caller is to know."""
    models = {f"model:{key}" for key in keys}
    found = [
        one
        for one in await shared.explainer.diagnoses()
        if one.about in models | _EVERYBODYS or f"model:{one.evidence.get('model')}" in models
    ]
    return found if caller.may("operate") else visible_to_tenants(found)


def _shown(record: CallRecord) -> dict[str, object]:
    ended_at = timestamp(datetime.fromtimestamp(record.ended_at, UTC))
    why = [one.as_json() for one in explain_call(record)]
    return {**asdict(record), "ended_at": ended_at, "why": why}


def _explained(about: str, found: Iterable[Diagnosis]) -> Response:
    return json_response({"about": about, "diagnoses": [one.as_json() for one in found]})
