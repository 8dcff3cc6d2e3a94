"""Results in order, also while the job runs; and single items."""

from collections.abc import Generator
from dataclasses import asdict, replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from api.context import Context, ContextDep
from api.dependencies import Reader, reads_on
from api.http import bodies, compression
from api.http.authorized_stream import AuthorizedStream
from api.http.responses import json_response
from api.routes.jobs.lookup import JobId, read_job, work_ahead
from api.schemas.jobs import ItemState
from jobs.blobs import lines, payloads
from jobs.errors import Conflict, NotFound, Pruned
from jobs.explain.items import explain_item
from jobs.identity import Caller
from jobs.states import Outcome
from jobs.store.db import Tx
from jobs.store.jobs import detail, read
from jobs.store.jobs.detail import ItemRow
from jobs.store.jobs.read import TRACEBACK, TRACEBACK_OF, JobRow, Span
from jobs.views import jobs, result_tables
from jobs.views.result_tables import MEDIA_TYPES, Format, choose

router = APIRouter(tags=["jobs"])

_LINES = {
    "schema": {"type": "string"},
    "example": '{"seq":0,"custom_id":"a-1","outcome":"succeeded","output":[0.0123,-0.0456],'
    '"error":null,"usage":{"tokens":7},"attempts":1}\n',
}
_TABLES = {
    kind: {"schema": {"type": "string", "format": "binary"}, "example": "(bytes)"}
    for kind in MEDIA_TYPES.values()
}
_Limit = Annotated[int | None, Query(ge=1, le=100_000_000)]
_Seq = Annotated[int, Path(ge=0, le=2**31 - 1, description="its position", examples=[0])]


@router.get(
    "/jobs/{job_id}/results",
    response_class=StreamingResponse,
    responses={200: {"content": {bodies.NDJSON: _LINES} | _TABLES}},
)
def get_results(
    request: Request,
    context: ContextDep,
    caller: Reader,
    job_id: JobId,
    after: Annotated[int, Query(ge=-1, le=2**31 - 1, description="a seq, exclusive")] = -1,
    limit: _Limit = None,
    outcome: Outcome | None = None,
    gaps: bool = False,
    format: Annotated[Format | None, Query(description="default: by Accept, else ndjson")] = None,
) -> Response:
    """Streams results as NDJSON in seq order, also while the job runs: up to the first gap, or
    past gaps with `gaps=true`. X-Next-After is the last seq that the response covers, to go on
    from; X-Complete is `true` if nothing comes after it; X-Generation is the generation of the job:
    results of another one don't go on these. Lines are compressed where Accept-Encoding asks for
    gzip.

    format: `arrow` (a stream) and `parquet` have a row a result, vectors as lists of float32, other
    outputs as JSON; `npy` is an array of the vectors alone, and refuses results without one."""
    kind = choose(format, request.headers.get("accept", ""))
    with read_job(request, context, caller, job_id) as (tx, job):
        _refuse_pruned(job, "results")
        validating = job.state == "validating"
        span = Span(after, after, complete=False) if validating else read.span(
            tx, job.tenant_id, job.id, job.total,
            after=after, gaps=gaps, outcome=outcome, limit=limit,
        )  # fmt: skip
    headers = {
        "X-Next-After": str(span.until),
        "X-Complete": str(span.complete).lower(),
        "X-Generation": str(job.generation),
    }
    body = _body(context, job, span, outcome, kind, gaps=gaps)
    headers["Vary"] = "Accept, Accept-Encoding"
    if kind == "ndjson" and compression.wants_gzip(request.headers.get("accept-encoding", "")):
        headers["Content-Encoding"] = "gzip"
        body = compression.gzip_stream(body)
    pieces = context.turns.pieces(caller.tenant, body)
    check = reads_on(request, context, job.tenant_id)
    media_type = MEDIA_TYPES.get(kind, bodies.NDJSON)
    return AuthorizedStream(pieces, check, headers=headers, media_type=media_type)


def _body(
    context: Context, job: JobRow, span: Span, outcome: Outcome | None, kind: Format, *, gaps: bool
) -> Generator[bytes, None, None]:
    """Returns the results as they are sent. Raises Conflict, NotConfigured."""
    if kind == "ndjson":
        unit = context.models.unit(job.model, job.version)
        chunks = read.result_lines(context.database, job, span, unit, outcome)
        return lines.resolve_lines(context.payloads, chunks)
    rows = read.result_rows(context.database, job, span, outcome)
    if kind != "npy":
        return result_tables.table(kind, rows, context.payloads)
    if gaps or outcome:
        raise Conflict("npy has a row for each result: it takes neither gaps nor outcome")
    if without := job.failed + job.cancelled + job.expired:
        message = f"{without:,} items have no output, and so no row of an array; ask for arrow"
        raise Conflict(message)
    return result_tables.array(rows, span.until - span.after)


@router.get("/jobs/{job_id}/items/{seq}", response_model=ItemState)
def get_item(
    request: Request, context: ContextDep, caller: Reader, job_id: JobId, seq: _Seq
) -> Response:
    """Returns one item: its input, its outcome, its launch, where its time went and why. Operators
    see the whole launch."""
    return json_response(item_detail(request, context, caller, job_id, seq))


def item_detail(
    request: Request, context: Context, caller: Caller, job_id: str, seq: int
) -> dict[str, Any]:
    """Returns the item object. Raises NotFound, Pruned, BlobStoreUnavailable."""
    with read_job(request, context, caller, job_id, seq=seq) as (tx, job):
        _refuse_pruned(job, "items", "results")
        row = detail.item(tx, job.tenant_id, job.id, seq)
        if row is None:
            raise NotFound(f"{job_id} has {job.total} items; {seq} is none of them")
        row = _with_traceback(tx, job, row)
        before = work_ahead(tx, caller, job)
    unit = context.models.unit(job.model, job.version)
    item = detail.ItemRow(**payloads.resolve_row(context.payloads, asdict(row)))
    why = explain_item(job, row, before)
    return jobs.item_object(item, unit, why, whole_launch=caller.may("operate"))


def _with_traceback(tx: Tx, job: JobRow, row: ItemRow) -> ItemRow:
    """Returns the item with the traceback that its error shares with another item's."""
    error = orjson.loads(row.error) if row.error else {}
    first = error.pop(TRACEBACK_OF, None)
    if first is None:
        return row
    other = detail.item(tx, job.tenant_id, job.id, first)
    of_other = orjson.loads((other and other.error) or "{}")
    if TRACEBACK in of_other:
        error[TRACEBACK] = of_other[TRACEBACK]
    return replace(row, error=orjson.dumps(error).decode())


def _refuse_pruned(job: JobRow, *kinds: str) -> None:
    for kind in kinds:
        if getattr(job, f"{kind}_pruned"):
            raise Pruned(f"the {kind} of this job were removed at the end of their retention")
