"""Items of a job as a new job, with other terms."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

import orjson
from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from api.auth import audit
from api.context import Context, ContextDep
from api.dependencies import Uploader
from api.http import bodies, idempotency
from api.http.errors import validated
from api.routes.jobs import submit
from api.routes.jobs.lookup import JobId, find_job
from api.schemas.jobs import Job, ResubmitRequest
from api.services.resources import Resources
from jobs import ids
from jobs.blobs import payloads
from jobs.errors import Conflict, Forbidden, Pruned
from jobs.identity import Caller
from jobs.intake import validation
from jobs.intake.idempotency_key import Claim
from jobs.states import TERMINAL
from jobs.store.db import Tx
from jobs.store.jobs import copies
from jobs.store.jobs.read import JobRow
from jobs.store.tenants import audit as audit_log

router = APIRouter(tags=["jobs"])

FROM = "resubmitted_from"
"""Key of the metadata with the id of the job that the items are from."""

_DOC = idempotency.request_doc("ResubmitRequest")


@router.post(
    "/jobs/{job_id}/resubmit",
    status_code=202,
    response_model=Job,
    openapi_extra=_DOC,
    responses={202: idempotency.REPLAY_HEADER_DOC},
)
async def resubmit_job(
    request: Request, context: ContextDep, caller: Uploader, job_id: JobId
) -> Response:
    """Stores a new job of the items of another one: of all, or of those that did not succeed. What
    the body names replaces the terms of that job; its id is in the metadata, `resubmitted_from`."""
    bodies.media_type(request, bodies.JSON)
    raw = await request.body()
    order = validated(ResubmitRequest, validation.parse_json(raw))
    key = idempotency.read_key(request, context.settings.require_idempotency_key)
    claim = await idempotency.claim_of(request, caller.tenant, key, raw) if key else None
    return await resubmit(request, context, caller, job_id, order, claim)


async def resubmit(
    request: Request, context: Context, caller: Caller, job_id: str, order: ResubmitRequest,
    claim: Claim | None,
) -> Response:  # fmt: skip
    """Stores the new job, and records the act. Raises what a submission does; NotFound, Pruned,
    Forbidden for another tenant's job, Conflict where there is nothing to submit again."""
    terms = order.model_dump(mode="json", by_alias=True, exclude_unset=True)
    query = {"job": job_id, "terms": orjson.dumps(terms).decode()}
    query["entry"] = orjson.dumps(audit.entry(request, caller, "job.resubmit", job_id)).decode()
    with tempfile.TemporaryFile() as nothing:
        heavy = await run_in_threadpool(_is_heavy, context, caller, job_id, order)
        return await submit.take(context, nothing, store_copy, caller, query, claim, is_heavy=heavy)


def _is_heavy(context: Context, caller: Caller, job_id: str, order: ResubmitRequest) -> bool:
    """Returns True where the items would hold up other requests of the process."""
    with find_job(context, caller, job_id) as (_, job):
        _check(caller, job, order.items == "unsuccessful")
        return job.input_bytes > bodies.LIGHT_BYTES


def store_copy(
    resources: Resources, caller: Caller, query: dict[str, str], body: IO[bytes],
    claim: Claim | None,
) -> Response:  # fmt: skip
    """Stores the new job with the entry of the act, maybe in a child process of the ingest pool."""
    entry: dict[str, Any] = orjson.loads(query["entry"])
    terms: dict[str, Any] = orjson.loads(query["terms"])
    unsuccessful = terms.pop("items", "all") == "unsuccessful"
    with find_job(resources, caller, query["job"]) as (_, job):
        _check(caller, job, unsuccessful)
    metadata = terms.pop("metadata", None)
    order = _terms(job) | terms
    order["metadata"] = (orjson.loads(job.metadata) if metadata is None else metadata) | {
        FROM: query["job"]
    }

    def record(tx: Tx, new: JobRow) -> None:
        entry["detail"]["job"] = ids.show("job", new.id)
        audit_log.record(tx, **entry)

    return submit.store(
        resources, caller, order, [], claim,
        lines=lambda most: _lines(resources, job, unsuccessful), also=record,
    )  # fmt: skip


def _check(caller: Caller, job: JobRow, unsuccessful: bool) -> None:
    if job.tenant_id != caller.tenant:
        raise Forbidden("a job is submitted again by its own tenant alone")
    if job.state == "validating":
        raise Conflict("the job's input is still being read; wait until it is queued")
    if job.items_pruned:
        raise Pruned("the items of this job were removed at the end of their retention")
    if not job.total:
        raise Conflict("the job has no items")
    if unsuccessful and job.state not in TERMINAL:
        raise Conflict("the job still runs: wait for its end, or submit all of its items again")
    if unsuccessful and job.succeeded == job.total:
        raise Conflict("all items of the job succeeded; submit them all again with `items: all`")


def _terms(job: JobRow) -> dict[str, Any]:
    """Returns the terms that the job was submitted with, results' target aside."""
    terms: dict[str, Any] = {
        "model": job.model if job.versioning == "routed" else f"{job.model}@{job.version}",
        "params": orjson.loads(job.params),
        "labels": orjson.loads(job.labels or "{}"),
        "class": job.job_class,
        "priority": job.priority,
        "expires_in_s": job.expires_in_s,
        "versioning": job.versioning,
    }
    if job.name:
        terms["name"] = job.name
    if job.webhook_url:
        terms["webhook"] = {"url": job.webhook_url}
    return terms


def _lines(resources: Resources, job: JobRow, unsuccessful: bool) -> Iterator[bytes]:
    """Yields the items as lines, payloads in place of references: the new job has its own."""
    for item in copies.items(resources.database, job, unsuccessful=unsuccessful):
        if item.input.startswith(payloads.REFERENCE_MARK):
            item = replace(item, input=resources.payloads.read(item.input).decode())
        yield item.as_line()
