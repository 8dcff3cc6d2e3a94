"""Message Batches for chat models: a batch is a job, and its requests are the items. Counts are
live, and so are results."""

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import IO, Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from api.compat.anthropic.schemas import (
    CREATE,
    CREATED,
    ERRORS,
    RESULTS,
    DeletedMessageBatch,
    MessageBatch,
    MessageBatchPage,
)
from api.context import Context, ContextDep
from api.dependencies import Reader, Submitter, Uploader, reads_on
from api.http import bodies, idempotency
from api.http.authorized_stream import AuthorizedStream
from api.http.responses import json_response
from api.routes.jobs.jobs import cancel_job, delete_job
from api.routes.jobs.lookup import find_job, is_retry, read_job
from api.services.intake.upload_meter import JOB_SHARE
from api.services.resources import Resources
from jobs import ids
from jobs.blobs import lines
from jobs.dialects.anthropic import Anthropic, item_of, model_of
from jobs.errors import Fault, Invalid, Malformed
from jobs.identity import Caller
from jobs.intake import validation
from jobs.intake.free_space import DiskFloor
from jobs.intake.idempotency_key import Claim
from jobs.intake.spool import MAX_FAULTS
from jobs.states import TERMINAL
from jobs.store.db import Tx
from jobs.store.jobs import read as reading
from jobs.store.jobs import search
from jobs.store.jobs.idempotency import find, find_batch
from jobs.store.jobs.read import JobRow
from jobs.store.jobs.search import Filter
from jobs.usecases.submit import Order, submit
from jobs.views import jobs

PATH = "/v1/messages/batches"
DIALECT = "anthropic"
_NOUN = "message batch"
router = APIRouter(tags=["anthropic"], responses=ERRORS)

_MIB = 1 << 20
_DAY_S = 86_400.0
_BATCH_ID = ids.pattern("msgbatch", "job")
_BatchId = Annotated[str, Path(description="msgbatch_…", pattern=_BATCH_ID)]
_Cursor = Annotated[str | None, Query(pattern=_BATCH_ID)]


@router.post(PATH, response_model=MessageBatch, openapi_extra=CREATE, responses=CREATED)
async def create_message_batch(request: Request, context: ContextDep, caller: Uploader) -> Response:
    """Stores a batch of Messages requests; responds once it is committed."""
    bodies.media_type(request, bodies.JSON)
    key = idempotency.read_key(request, context.settings.require_idempotency_key)
    upload = idempotency.Upload(request, caller.tenant, key) if key else None
    most = context.settings.max_json_mb * _MIB
    meter = context.upload_meter.begin(caller, JOB_SHARE)
    async with bodies.spooled(request, most, meter, upload.add if upload else None) as body:
        request_info = caller, upload.finish() if upload else None, is_retry(request)
        if bodies.is_heavy_file(body):
            row, replayed = await context.ingest_pool.run(caller.tenant, _once, body, *request_info)
        else:
            async with context.submission_turns.place(caller.tenant):
                row, replayed = await run_in_threadpool(_once, context, body, *request_info)
    return json_response(
        _batch_object(row, request), 200, idempotency.REPLAYED if replayed else None
    )


def _once(
    resources: Resources, body: IO[bytes], caller: Caller, claim: Claim | None, retries: bool
) -> tuple[JobRow, bool]:
    """Returns the job's row, and True if it existed: under the same key or, without one, from a
    request that this one retries. Result and errors can be pickled."""
    raw = body.read()
    fingerprint = sha256(raw).hexdigest()
    with resources.acting(caller.tenant) as tx:
        job_id = None
        if claim:
            stored = find(tx, claim)
            job_id = stored.job_id if stored else None
        elif retries:
            job_id = find_batch(tx, caller.tenant, fingerprint, DIALECT)
        if job_id:
            return reading.one(tx, caller.tenant, job_id), True
    return _store(resources, raw, caller, claim, fingerprint), False


def _store(
    resources: Resources, raw: bytes, caller: Caller, claim: Claim | None, fingerprint: str
) -> JobRow:
    fields = validation.parse_json(raw)
    requests = fields.get("requests") if isinstance(fields, dict) else None
    if not isinstance(requests, list) or not requests:
        raise Malformed("the body must be an object with requests, an array of at least one")
    model = model_of(requests[0])
    if not model:
        fault = Fault(("requests", 0, "params", "model"), "missing", "a request needs a model")
        raise Invalid("the first request names no model", faults=[fault])
    if (task := resources.models.resolve(model).effective_task) != "chat":
        fault = Fault(("requests", 0, "params", "model"), "model", f"{model} does {task}, not chat")
        raise Invalid("the model can't converse", faults=[fault])
    items, faults = _read(requests, model)
    try:
        row = submit(
            resources.database,
            resources.models,
            caller.tenant,
            Order(model, expires_in_s=_DAY_S),
            notifier=resources.notifier,
            array=items,
            faults=faults,
            max_items=resources.settings.max_items,
            max_bytes=resources.settings.max_spool_mb * _MIB,
            floor=DiskFloor.from_settings(resources.settings),
            payloads=resources.payloads,
            limits=caller.limits,
            claim=claim,
            key=caller.key_id,
            dialect=DIALECT,
            asked={"model": model, "request": fingerprint},
        )
    except Invalid as error:
        error.faults = tuple(map(_request_fault, error.faults))
        raise
    return row


def _read(requests: list[Any], model: str) -> tuple[list[Any], list[Fault]]:
    """Returns the items of the requests and their faults, up to one more than are listed."""
    items, faults = [], []
    for n, request in enumerate(requests):
        item, found = item_of(request, model, ("requests", n))
        items.append(item)
        faults += found
        if len(faults) > MAX_FAULTS:
            break
    return items, faults


def _request_fault(fault: Fault) -> Fault:
    """Translates the location of a fault from our item to the client's request."""
    if fault.loc[:1] != ("items",):
        return fault
    loc = ["requests", *fault.loc[1:]]
    if len(loc) > 2 and loc[2] == "input":
        loc[2] = "params"
    return Fault(tuple(loc), fault.code, fault.message)


@router.get(PATH, response_model=MessageBatchPage)
def list_message_batches(
    request: Request,
    context: ContextDep,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    after_id: _Cursor = None,
    before_id: _Cursor = None,
) -> Response:
    """Lists batches, newest first: those after `after_id` or right before `before_id`."""
    newer = before_id is not None
    with context.acting(caller.tenant) as tx:
        rows = search.page(
            tx,
            caller.tenant,
            Filter(dialect=DIALECT),
            after=_parsed(before_id or after_id),
            limit=limit + 1,
            newer=newer,
        )
    data = [_batch_object(row, request) for row in (rows[-limit:] if newer else rows[:limit])]
    return json_response(
        {
            "data": data,
            "has_more": len(rows) > limit,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
        }
    )


def _parsed(id: str | None) -> Any:
    return ids.parse(id.partition("_")[0], id) if id else None


@router.get(PATH + "/{message_batch_id}", response_model=MessageBatch)
def get_message_batch(
    request: Request, context: ContextDep, caller: Reader, message_batch_id: _BatchId
) -> Response:
    """Returns the batch, with live counts."""
    with _find(context, caller, message_batch_id) as (_, job):
        return json_response(_batch_object(job, request))


@router.post(PATH + "/{message_batch_id}/cancel", response_model=MessageBatch)
def cancel_message_batch(
    request: Request, context: ContextDep, caller: Submitter, message_batch_id: _BatchId
) -> Response:
    """Cancels requests that have not begun; results are kept. Repeating it is harmless."""
    with _find(context, caller, message_batch_id):
        pass
    cancel_job(request, context, caller, message_batch_id)
    return get_message_batch(request, context, caller, message_batch_id)


@router.delete(PATH + "/{message_batch_id}", response_model=DeletedMessageBatch)
def delete_message_batch(
    request: Request, context: ContextDep, caller: Submitter, message_batch_id: _BatchId
) -> Response:
    """Deletes a batch that has ended, with its results."""
    with _find(context, caller, message_batch_id):
        pass
    delete_job(request, context, caller, message_batch_id)
    return json_response({"id": message_batch_id, "type": "message_batch_deleted"})


@router.get(
    PATH + "/{message_batch_id}/results", response_class=StreamingResponse, responses=RESULTS
)
def get_message_batch_results(
    request: Request, context: ContextDep, caller: Reader, message_batch_id: _BatchId
) -> Response:
    """Streams one line per request, in their order; while the batch runs, up to the first request
    without a result."""
    found = read_job(request, context, caller, message_batch_id, _NOUN, DIALECT)
    with found as (tx, job):
        span = reading.span(
            tx, job.tenant_id, job.id, job.total,
            after=-1, gaps=False, outcome=None, limit=None,
        )  # fmt: skip
    native = reading.result_lines(context.database, job, span, "units", None)
    opened = lines.resolve_lines(context.payloads, native)
    request_info = orjson.loads(job.asked or "{}") | {"id": str(job.id)}
    translated = _translated_lines(opened, request_info)
    return AuthorizedStream(
        context.turns.pieces(caller.tenant, translated),
        reads_on(request, context, job.tenant_id),
        media_type="application/x-jsonl",
    )


def _translated_lines(
    pieces: Iterable[bytes], request_info: dict[str, Any]
) -> Generator[bytes, None, None]:
    """Translates native result lines. An output from the blob store makes a line come in pieces."""
    dialect, rest = Anthropic(), b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        rows = map(orjson.loads, whole)
        yield b"".join(
            dialect.result_line(_row(row), "units", request_info)[1] + b"\n" for row in rows
        )


def _row(line: dict[str, Any]) -> dict[str, Any]:
    texts = {name: orjson.dumps(line[name]) for name in ("output", "error")}
    return {**line, **texts, "reply": None}


def _find(
    context: Context, caller: Caller, message_batch_id: str
) -> AbstractContextManager[tuple[Tx, JobRow]]:
    """Yields a transaction and the row of a message batch. Raises NotFound for other jobs."""
    return find_job(context, caller, message_batch_id, _NOUN, DIALECT)


def _batch_object(row: Any, request: Request) -> dict[str, Any]:
    """Returns the batch of a job's row."""
    id, counts = ids.show("msgbatch", row.id), jobs.job_object(row)["counts"]
    ended = row.state in TERMINAL
    cancelling = row.state == "cancelling"
    return {
        "id": id,
        "type": "message_batch",
        "processing_status": "ended" if ended else "canceling" if cancelling else "in_progress",
        "request_counts": {
            "processing": counts["pending"] + counts["running"],
            "succeeded": counts["succeeded"],
            "errored": counts["failed"],
            "canceled": counts["cancelled"],
            "expired": counts["expired"],
        },
        "created_at": jobs.timestamp(row.created_at),
        "expires_at": jobs.timestamp(row.expires_at),
        "ended_at": jobs.timestamp(row.finished_at),
        "cancel_initiated_at": jobs.timestamp(row.cancelling_at),
        "archived_at": None,
        "results_url": f"{str(request.base_url).rstrip('/')}{PATH}/{id}/results" if ended else None,
    }
