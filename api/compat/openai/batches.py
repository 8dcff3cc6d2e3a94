"""OpenAI's batches, as an interface to jobs."""

from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.compat.openai import durations, files
from api.compat.openai.files import page_object
from api.compat.openai.schemas import ERRORS, Batch, BatchList, BatchRequest
from api.context import Context, ContextDep
from api.dependencies import Reader, Submitter, Uploader
from api.http import bodies, idempotency
from api.http.errors import validated
from api.http.responses import JsonBytes, json_response
from api.routes.jobs import jobs
from api.routes.jobs.lookup import JOB_ID, PREFIXES, find_job, is_retry, read_job
from jobs import clock, ids
from jobs.dialects.openai_lines import ENDPOINTS
from jobs.errors import Conflict, Fault, Invalid, Malformed
from jobs.identity import Caller
from jobs.intake import validation
from jobs.intake.idempotency_key import Claim
from jobs.states import TERMINAL
from jobs.store.billing import spend
from jobs.store.db import Tx
from jobs.store.jobs import files as file_rows
from jobs.store.jobs import read, search, transfers
from jobs.store.jobs.files import FileRow
from jobs.store.jobs.idempotency import find, find_batch, lock, lock_batch, store
from jobs.store.jobs.insert import SubmittedJob
from jobs.store.jobs.read import JobRow
from jobs.store.jobs.search import Filter
from jobs.telemetry.tracing import spans

router = APIRouter(tags=["openai"], responses=ERRORS)
PATH = "/v1/batches"
PREFIX = "batch"
DIALECT = "openai"

BatchId = Annotated[str, Path(description="batch_…, or job_…", max_length=200)]

_MAX_BYTES = 1 << 20


@router.post(
    PATH,
    response_model=Batch,
    openapi_extra=idempotency.request_doc("BatchRequest"),
    responses={200: idempotency.REPLAY_HEADER_DOC},
)
async def create_batch(request: Request, context: ContextDep, caller: Uploader) -> Response:
    """Makes a job of a file with the purpose `batch`. All lines are checked before any runs: until
    then the batch is `validating`, and problems stand in `errors`. Items that are not done within
    `completion_window`, any duration, expire."""
    bodies.media_type(request, bodies.JSON)
    key = idempotency.read_key(request, context.settings.require_idempotency_key)
    raw = await context.call_bodies.read(request, _MAX_BYTES, caller.tenant)
    claim = await idempotency.claim_of(request, caller.tenant, key, raw) if key else None
    async with context.submission_turns.place(caller.tenant):
        return await run_in_threadpool(_create, context, caller, raw, claim, is_retry(request))


def _create(
    context: Context, caller: Caller, raw: bytes, claim: Claim | None, retries: bool
) -> Response:
    requested, window_s = _read(raw)
    fingerprint = sha256(raw).hexdigest()

    def is_same(job_id: UUID) -> bool:
        """Returns True for the batch of this very request: its file was deleted since, or its
        fingerprint is one of 0.2.0, which went by the file's id."""
        row = read.get(tx, caller.tenant, job_id)
        return row is not None and orjson.loads(row.asked or "{}").get("request") == fingerprint

    with context.acting(caller.tenant) as tx:
        file = _file(tx, caller, requested.input_file_id)
        if claim:
            claim = _by_content(claim, raw, requested.input_file_id, file)
            if stored := find(tx, claim, is_same):
                return JsonBytes(stored.answer.encode(), idempotency.REPLAYED)
            lock(tx, claim)
        else:
            lock_batch(tx, caller.tenant, fingerprint)
            job_id = find_batch(tx, caller.tenant, fingerprint, DIALECT) if retries else None
            if job_id:
                row = read.one(tx, caller.tenant, job_id)
                return json_response(batch_object(row), 200, idempotency.REPLAYED)
        _check_purpose(file)
        spend.check_cap(tx, caller.tenant)
        row = transfers.insert_validating(
            tx, _new_job(caller, requested, window_s, fingerprint), caller.limits
        )
        answer = orjson.dumps(batch_object(row))
        if claim:
            store(tx, claim, row.id, answer)
    return JsonBytes(answer, {})


def _read(raw: bytes) -> tuple[BatchRequest, float]:
    """Parses a request. Returns it with its window in seconds. Raises Malformed, Invalid."""
    fields = validation.parse_json(raw)
    if not isinstance(fields, dict):
        raise Malformed("the body must be a JSON object")
    requested = validated(BatchRequest, fields)
    faults = []
    if requested.endpoint not in ENDPOINTS:
        message = f"the endpoint is {requested.endpoint!r}; it is one of {', '.join(ENDPOINTS)}"
        faults.append(Fault(("endpoint",), "invalid_value", message))
    window_s = 0.0
    try:
        window_s = durations.seconds(requested.completion_window)
    except ValueError as error:
        faults.append(Fault(("completion_window",), "invalid_value", str(error)))
    if faults:
        raise Invalid("; ".join(fault.message for fault in faults), faults=faults)
    return requested, window_s


def _file(tx: Tx, caller: Caller, file_id: str) -> FileRow | None:
    id = ids.parse(files.PREFIX, file_id)
    return file_rows.get(tx, caller.tenant, id) if id else None


def _by_content(claim: Claim, raw: bytes, file_id: str, file: FileRow | None) -> Claim:
    """Returns the claim of a request with the content of its file in place of the id: a file that
    was uploaded again makes no other request."""
    content = file.sha256.hex() if file else file_id
    request = raw.replace(file_id.encode(), content.encode())
    return replace(claim, fingerprint=sha256(b"batch\n" + request).digest())


def _check_purpose(row: FileRow | None) -> None:
    """Raises Invalid where the file is for another purpose. A file that isn't there fails the
    batch once its lines are to be read, as at OpenAI."""
    if row is not None and row.purpose != "batch":
        message = f"the purpose of the input file is {row.purpose!r}; upload it for 'batch'"
        fault = Fault(("input_file_id",), "invalid_file_purpose", message)
        raise Invalid(message, faults=[fault])


def _new_job(
    caller: Caller, requested: BatchRequest, window_s: float, fingerprint: str
) -> SubmittedJob:
    id = ids.new()
    expiry = requested.output_expires_after
    stored_request = {
        "endpoint": requested.endpoint,
        "completion_window": requested.completion_window,
        "prefix": ids.show("", id).removeprefix("_") + "_",
        "created": int(clock.now().timestamp()),
        "request": fingerprint,
        "on_invalid": requested.on_invalid,
    }
    return SubmittedJob(
        id,
        caller.tenant,
        source=_json_text({"file": requested.input_file_id}),
        dialect=DIALECT,
        asked=_json_text(stored_request),
        target=_json_text({"files": {"expires_in_s": expiry.seconds if expiry else None}}),
        metadata=_json_text(requested.metadata or {}),
        expires_in_s=window_s,
        key=caller.key_id,
        versioning=requested.versioning,
        traceparent=spans.current_context(),
    )


def _json_text(value: Any) -> str:
    return orjson.dumps(value).decode()


@router.get(PATH, response_model=BatchList)
def list_batches(
    context: ContextDep,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[
        str | None, Query(description="the last id of the page before", pattern=JOB_ID)
    ] = None,
) -> Response:
    """Lists batches, newest first."""
    with context.acting(caller.tenant) as tx:
        last = ids.parse(PREFIXES, after) if after else None
        own = Filter(dialect=DIALECT)
        rows = search.page(tx, caller.tenant, own, after=last, limit=limit + 1)
    return json_response(page_object([batch_object(row) for row in rows], limit))


@router.get(PATH + "/{batch_id}", response_model=Batch)
def get_batch(request: Request, context: ContextDep, caller: Reader, batch_id: BatchId) -> Response:
    """Returns the batch, with live counts."""
    with read_job(request, context, caller, batch_id, "batch", DIALECT) as (_, row):
        return json_response(batch_object(row))


@router.post(PATH + "/{batch_id}/cancel", response_model=Batch)
def cancel_batch(
    request: Request, context: ContextDep, caller: Submitter, batch_id: BatchId
) -> Response:
    """Cancels a batch: items that wait end at once, running ones at the next launch boundary.
    Results until then are in the output file. 409 once the batch has ended."""
    status = status_of(_batch(context, caller, batch_id))
    if status in TERMINAL and not is_retry(request):
        raise Conflict(f"Cannot cancel a batch with status {status!r}.")
    jobs.cancel_job(request, context, caller, batch_id)
    return json_response(batch_object(_batch(context, caller, batch_id)))


def _batch(context: Context, caller: Caller, batch_id: str) -> JobRow:
    """Returns the job's row. Raises NotFound, also for a job of another API."""
    with find_job(context, caller, batch_id, "batch", DIALECT) as (_, row):
        return row


def batch_object(row: JobRow) -> dict[str, Any]:
    """Returns the batch of a job's row (`jobs.store.jobs.read`), without absent fields."""
    requested = orjson.loads(row.asked or "{}")
    manifest = orjson.loads(row.manifest or "{}")
    file_ids = {part["part"]: part["file"] for part in manifest.get("parts", ())}
    batch = {
        "id": ids.show(PREFIX, row.id),
        "object": "batch",
        "endpoint": requested["endpoint"],
        "model": row.model or None,
        "errors": _errors(row.error, manifest),
        "input_file_id": orjson.loads(row.source or "{}")["file"],
        "completion_window": requested["completion_window"],
        "status": status_of(row),
        "output_file_id": file_ids.get("results"),
        "error_file_id": file_ids.get("errors"),
        "created_at": _unix(row.created_at),
        "expires_at": _unix(row.expires_at),
        **{name: _unix(at) for name, at in _times(row).items()},
        "request_counts": {
            "total": row.total,
            "completed": int(row.succeeded),
            "failed": int(row.failed),
        },
        "usage": _usage(manifest),
        "metadata": orjson.loads(row.metadata) or None,
    }
    return {name: value for name, value in batch.items() if value is not None}


def status_of(row: JobRow) -> str:
    """Returns OpenAI's status. A batch has ended once its files are written."""
    state: str = row.state
    if state in ("queued", "running", "paused"):
        return "in_progress"
    if state in TERMINAL and row.total and row.manifest is None:
        return "cancelling" if state == "cancelled" else "finalizing"
    return state


def _times(row: JobRow) -> dict[str, datetime | None]:
    status, state = status_of(row), row.state
    times = {"in_progress_at": row.queued_at, "cancelling_at": row.cancelling_at}
    if row.total and state in ("completed", "expired"):
        times["finalizing_at"] = row.finished_at
    if status in TERMINAL:
        times[f"{status}_at"] = row.written_at or row.finished_at
    return times


def _unix(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())


def _errors(error: str | None, manifest: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the faults of the input's lines, or of the batch as a whole."""
    batch = orjson.loads(error) if error else manifest.get("error")
    if batch is None:
        return None
    whole = {"loc": [], "code": batch["code"], "message": batch["message"]}
    data = [
        {
            "code": fault["code"],
            "message": fault["message"],
            "param": ".".join(map(str, fault["loc"])) or None,
            "line": fault.get("line"),
        }
        for fault in batch.get("errors") or [whole]
    ]
    return {"object": "list", "data": data}


def _usage(manifest: dict[str, Any]) -> dict[str, Any] | None:
    """Returns usage of successful items, where tokens were counted."""
    size = manifest.get("usage", {}).get("tokens")  # all there is in manifests of 0.2.0
    tokens = manifest.get("tokens") or (size is not None and {"input": size})
    if not tokens:
        return None
    input, output = tokens["input"], tokens.get("output", 0)
    return {
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": tokens.get("cached", 0)},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + output,
    }
