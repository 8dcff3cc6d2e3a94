"""Message Batches for chat models: a batch is a job a model, and its requests are the items.
Counts are live, and so are results."""

from collections.abc import Generator, Iterable, Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from api.compat.anthropic.schemas import (
    CREATE,
    CREATED,
    ERRORS,
    RESULTS,
    DeletedMessageBatch,
    MessageBatch,
    MessageBatchPage,
)
from api.compat.anthropic.submission import DIALECT, jobs_of, submit_once
from api.context import Context, ContextDep
from api.dependencies import Reader, Submitter, Uploader, reads_on
from api.http import bodies, idempotency
from api.http.authorized_stream import AuthorizedStream
from api.http.responses import json_response
from api.routes.jobs import verbs
from api.routes.jobs.lookup import find_job, is_retry, read_job
from api.services.intake.upload_meter import JOB_SHARE
from jobs import ids
from jobs.blobs import lines
from jobs.dialects.anthropic import Anthropic
from jobs.errors import Conflict
from jobs.identity import Caller
from jobs.states import TERMINAL
from jobs.store.db import Tx
from jobs.store.jobs import read as reading
from jobs.store.jobs import search
from jobs.store.jobs.read import JobRow, Span
from jobs.store.jobs.search import Filter
from jobs.views import jobs

PATH = "/v1/messages/batches"
_NOUN = "message batch"
router = APIRouter(tags=["anthropic"], responses=ERRORS)

_MIB = 1 << 20
_BATCH_ID = ids.pattern("msgbatch", "job")
_BatchId = Annotated[str, Path(description="msgbatch_…", max_length=200)]
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
            stored, replayed = await context.ingest_pool.run(
                caller.tenant, submit_once, body, *request_info
            )
        else:
            async with context.submission_turns.place(caller.tenant):
                stored, replayed = await run_in_threadpool(
                    submit_once, context, body, *request_info
                )
    return json_response(
        _batch_object(stored, request), 200, idempotency.REPLAYED if replayed else None
    )


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
        batches = jobs_of(tx, rows[-limit:] if newer else rows[:limit])
    data = [_batch_object(batch, request) for batch in batches]
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
    return json_response(_batch_object(_find(context, caller, message_batch_id), request))


@router.post(PATH + "/{message_batch_id}/cancel", response_model=MessageBatch)
def cancel_message_batch(
    request: Request, context: ContextDep, caller: Submitter, message_batch_id: _BatchId
) -> Response:
    """Cancels requests that have not begun; results are kept. Repeating it is harmless."""
    for job in _find(context, caller, message_batch_id):
        verbs.perform(request, context, caller, "cancel", ids.show("msgbatch", job.id))
    return get_message_batch(request, context, caller, message_batch_id)


@router.delete(PATH + "/{message_batch_id}", response_model=DeletedMessageBatch)
def delete_message_batch(
    request: Request, context: ContextDep, caller: Submitter, message_batch_id: _BatchId
) -> Response:
    """Deletes a batch that has ended, with its results."""
    batch = _find(context, caller, message_batch_id)
    if _is_open(batch):
        raise Conflict("the batch has not ended; cancel it first, and delete it when it has")
    for job in reversed(batch):  # the first names the others: a repetition finds what is left
        verbs.perform(request, context, caller, "delete", ids.show("msgbatch", job.id))
    return json_response({"id": message_batch_id, "type": "message_batch_deleted"})


@router.get(
    PATH + "/{message_batch_id}/results", response_class=StreamingResponse, responses=RESULTS
)
def get_message_batch_results(
    request: Request, context: ContextDep, caller: Reader, message_batch_id: _BatchId
) -> Response:
    """Streams one line per request, model by model, in the order of its requests; while the batch
    runs, of each model up to the first request without a result."""
    found = read_job(request, context, caller, message_batch_id, _NOUN, DIALECT)
    with found as (tx, batch):
        spans = [(job, _span(tx, job)) for job in jobs_of(tx, [batch])[0]]
    return AuthorizedStream(
        context.turns.pieces(caller.tenant, _result_lines(context, spans)),
        reads_on(request, context, batch.tenant_id),
        media_type="application/x-jsonl",
    )


def _span(tx: Tx, job: JobRow) -> Span:
    return reading.span(
        tx, job.tenant_id, job.id, job.total, after=-1, gaps=False, outcome=None, limit=None
    )


def _result_lines(
    context: Context, spans: Sequence[tuple[JobRow, Span]]
) -> Generator[bytes, None, None]:
    for job, span in spans:
        native = reading.result_lines(context.database, job, span, "units", None)
        opened = lines.resolve_lines(context.payloads, native)
        request_info = orjson.loads(job.asked or "{}") | {"id": str(job.id)}
        yield from _translated_lines(opened, request_info)


def _translated_lines(
    pieces: Iterable[bytes], request_info: dict[str, Any]
) -> Generator[bytes, None, None]:
    """Translates native result lines. An output from the blob store makes a line come in pieces."""
    dialect, rest = Anthropic(), b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        rows = map(orjson.loads, whole)
        found = (dialect.result_line(_row(row), "units", request_info)[1] for row in rows)
        yield lines.one_line(b"".join(line + b"\n" for line in found))


def _row(line: dict[str, Any]) -> dict[str, Any]:
    texts = {name: orjson.dumps(line[name]) for name in ("output", "error")}
    return {**line, **texts, "reply": None, "version": None}


def _find(context: Context, caller: Caller, message_batch_id: str) -> list[JobRow]:
    """Returns the jobs of a message batch. Raises NotFound for other jobs."""
    with find_job(context, caller, message_batch_id, _NOUN, DIALECT) as (tx, job):
        return jobs_of(tx, [job])[0]


def _is_open(batch: Sequence[JobRow]) -> bool:
    return any(job.state not in TERMINAL for job in batch)


def _batch_object(batch: Sequence[JobRow], request: Request) -> dict[str, Any]:
    """Returns the batch of its jobs' rows."""
    id, ended = ids.show("msgbatch", batch[0].id), not _is_open(batch)
    cancelled_at = [job.cancelling_at for job in batch if job.cancelling_at]
    ended_at = max(job.finished_at or job.created_at for job in batch) if ended else None
    counts = [jobs.job_object(job)["counts"] for job in batch]
    status = "ended" if ended else "canceling" if cancelled_at else "in_progress"
    return {
        "id": id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": {
            "processing": sum(of["pending"] + of["running"] for of in counts),
            "succeeded": sum(of["succeeded"] for of in counts),
            "errored": sum(of["failed"] for of in counts),
            "canceled": sum(of["cancelled"] for of in counts),
            "expired": sum(of["expired"] for of in counts),
        },
        "created_at": jobs.timestamp(batch[0].created_at),
        "expires_at": jobs.timestamp(batch[0].expires_at),
        "ended_at": jobs.timestamp(ended_at),
        "cancel_initiated_at": jobs.timestamp(min(cancelled_at, default=None)),
        "archived_at": None,
        "results_url": f"{str(request.base_url).rstrip('/')}{PATH}/{id}/results" if ended else None,
    }
