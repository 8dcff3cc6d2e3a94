"""Diagnoses: `why` of a call, a job, a model and the whole platform."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Response
from starlette.concurrency import run_in_threadpool

from api.context import Context, ContextDep
from api.dependencies import Operator, Reader
from api.http.responses import json_response
from api.routes.ended_calls import call_object
from api.routes.jobs.lookup import JobId, find_job, work_ahead
from api.schemas.calls import EndedCall
from api.schemas.common import CALL_ID, MODEL
from api.schemas.fleet import Explanation
from jobs import ids
from jobs.calls.records import RETENTION_S, CallRecord
from jobs.errors import NotFound
from jobs.explain.calls import explain_call
from jobs.explain.diagnosis import Diagnosis, most_severe_first, visible_to_tenants
from jobs.explain.jobs import explain_job
from jobs.identity import Caller
from jobs.states import TERMINAL
from jobs.store.monitoring import diagnostics

router = APIRouter(tags=["why"])
#: Parts of the platform that every model depends on.
_SHARED_PARTS = frozenset({"api", "database", "redis", "reports"})

CallId = Annotated[str, Path(description="call_…", pattern=ids.pattern("call"), examples=[CALL_ID])]
ModelName = Annotated[
    str, Path(description="name, or name@version", max_length=200, examples=[MODEL])
]


@router.get("/why", response_model=Explanation)
async def why_everything(context: ContextDep, caller: Operator) -> Response:
    """Lists every cause of trouble in the last minute with its figures, the most severe first. An
    empty list: no findings."""
    return _explanation("everything", await context.diagnostics.diagnoses())


@router.get("/models/{model}/why", response_model=Explanation)
async def why_model(context: ContextDep, caller: Reader, model: ModelName) -> Response:
    """Lists what affects a model now, and what affects every model. A name without a version means
    all its versions. Findings about other tenants are for operators only."""
    model_keys = [diagnoses.key for diagnoses in context.models_of(caller.tenant).versions(model)]
    diagnoses = await _model_diagnoses(context, caller, model_keys)
    return _explanation(f"model:{model_keys[0] if len(model_keys) == 1 else model}", diagnoses)


@router.get("/jobs/{job_id}/why", response_model=Explanation)
async def why_job(context: ContextDep, caller: Reader, job_id: JobId) -> Response:
    """Explains where a job stands and what it waits for; while it is open, also what affects its
    model."""
    return _explanation(f"job:{job_id}", await diagnose_job(context, caller, job_id))


async def diagnose_job(context: Context, caller: Caller, job_id: str) -> list[Diagnosis]:
    """Returns findings on a job, the most severe first. Raises NotFound."""
    keys, diagnoses = await run_in_threadpool(_why_job, context, caller, job_id)
    if keys:
        diagnoses += await _model_diagnoses(context, caller, keys)
    return most_severe_first(diagnoses)


@router.get("/calls/{call_id}", response_model=EndedCall)
async def get_call(context: ContextDep, caller: Reader, call_id: CallId) -> Response:
    """Returns the record of a call that ended within the last hour, and where its time went. At
    high rates only failed and slow calls are recorded."""
    return json_response(_ended_call(await find_call(context, caller, call_id), caller))


async def find_call(context: Context, caller: Caller, call_id: str) -> CallRecord:
    """Returns the record of a call. Raises NotFound, also where the caller may not see it."""
    if not context.settings.metrics:
        raise NotFound("nothing is kept of calls: MILLRACE_METRICS is off")
    record = await context.call_log.find(call_id)
    if record is None or not (record.tenant == caller.tenant or caller.may("operate")):
        raise NotFound(
            f"nothing is kept of {call_id}: it hasn't ended, ended more than "
            f"{RETENTION_S // 3600} hour ago, or was one of so many that only the slowest and "
            "those that failed are kept"
        )
    return record


def _why_job(
    context: Context, caller: Caller, job_id: str
) -> tuple[Sequence[str], list[Diagnosis]]:
    """Returns the versions (name@version) that a job waits for, none once it has ended, and
    findings on the job itself."""
    with find_job(context, caller, job_id) as (tx, job):
        slices = diagnostics.slice_counts(tx, job.id, job.tenant_id)
        errors = diagnostics.error_counts(tx, job.id, job.tenant_id)
        before = work_ahead(tx, caller, job)
        routed = job.versioning == "routed" and job.total
        own = [] if job.state in TERMINAL else [job.version]
        versions = diagnostics.open_versions(tx, job.id, job.tenant_id) if routed else own
    diagnoses = explain_job(job, slices, errors, before)
    return [f"{job.model}@{version}" for version in versions], diagnoses


async def _model_diagnoses(
    context: Context, caller: Caller, model_keys: Iterable[str]
) -> list[Diagnosis]:
    """Returns findings on these models (name@version) that the caller may see."""
    models = {f"model:{key}" for key in model_keys}
    diagnoses = [
        diagnosis
        for diagnosis in await context.diagnostics.diagnoses()
        if diagnosis.about in models | _SHARED_PARTS
        or f"model:{diagnosis.evidence.get('model')}" in models
    ]
    return diagnoses if caller.may("operate") else visible_to_tenants(diagnoses)


def _ended_call(record: CallRecord, caller: Caller) -> dict[str, object]:
    why = [diagnosis.as_json() for diagnosis in explain_call(record)]
    return {**asdict(record), **call_object(record, caller), "why": why}


def _explanation(about: str, diagnoses: Iterable[Diagnosis]) -> Response:
    return json_response(
        {"about": about, "diagnoses": [diagnosis.as_json() for diagnosis in diagnoses]}
    )
