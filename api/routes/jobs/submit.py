"""Submission of jobs: as one JSON document, or as a stream of lines."""

import io
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import IO, Any
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from api.context import Context, ContextDep
from api.dependencies import Uploader
from api.http import bodies, idempotency
from api.http.errors import faults_of
from api.http.responses import JsonBytes
from api.routes.jobs import transfers
from api.routes.jobs.webhooks import url_faults
from api.schemas.jobs import Job, JobInput, JobRequest
from api.services.intake.upload_meter import JOB_SHARE
from api.services.resources import Resources
from jobs import ids
from jobs.errors import Fault, Invalid, Malformed, MillraceError
from jobs.identity import Caller
from jobs.intake import validation
from jobs.intake.free_space import DiskFloor
from jobs.intake.idempotency_key import Claim
from jobs.intake.lines import bounded_lines
from jobs.store.jobs.idempotency import StoredResponse, find
from jobs.usecases.submit import (
    AlsoStore,
    Order,
    Submission,
    nothing_else,
    prepare,
    submit,
    submit_source,
)
from jobs.usecases.submit_together import fits
from jobs.views import jobs

router = APIRouter(tags=["jobs"])
PATH = "/jobs"

_MIB = 1 << 20
_SMALL_BYTES = 1 << 12  # of a body that is parsed beside other requests
_SMALL_ITEMS = 16  # that are checked there
_ELSEWHERE = frozenset(("input", "output"))  # fields that name files or addresses
_JSON_PARAMETERS = ("params", "metadata", "labels", "webhook", "output")

StoreBody = Callable[[Resources, Caller, dict[str, str], IO[bytes], Claim | None], Response]
"""Stores the job of a body; the dictionary has the fields that are not in it."""

ReadLines = Callable[[int], Iterable[bytes | None]]
"""Reads the lines of items, None in place of those that have more bytes than this."""

_SUBMIT_DOC: dict[str, Any] = {
    "parameters": [
        idempotency.PARAMETER,
        *(
            {
                "name": name,
                "in": "query",
                "description": f"with an NDJSON body: {field.description or 'as in the JSON body'}",
                "schema": {"type": "string"},
            }
            for name, field in ((f.alias or name, f) for name, f in JobRequest.model_fields.items())
        ),
    ],
    "requestBody": {
        "required": True,
        "content": {
            bodies.JSON: {"schema": {"$ref": "#/components/schemas/JobWithItems"}},
            bodies.NDJSON: {
                "schema": {"type": "string", "description": "one item a line"},
                "example": '{"custom_id": "a-1", "input": "how do I parse JSON"}\n'
                '"a text alone is an item too"\n',
            },
        },
    },
}


@router.post(
    PATH,
    status_code=202,
    response_model=Job,
    openapi_extra=_SUBMIT_DOC,
    responses={202: idempotency.REPLAY_HEADER_DOC},
)
async def submit_job(request: Request, context: ContextDep, caller: Uploader) -> Response:
    """Stores a job; 202 once it is committed. The body is a JSON object with `items`, or with the
    `input` that they are read from; or NDJSON, one item a line, with all other fields as query
    parameters (objects as JSON)."""
    bodies.media_type(request, bodies.JSON, bodies.NDJSON)
    key = idempotency.read_key(request, context.settings.require_idempotency_key)
    if key is None:
        return await _receive(request, context, caller, None)
    upload = idempotency.Upload(request, caller.tenant, key)
    with context.uploads.alone(upload):
        return await _receive(request, context, caller, upload)


async def _receive(
    request: Request, context: Context, caller: Caller, upload: idempotency.Upload | None
) -> Response:
    """Stores the job: a small one with those of other requests, others on a thread or, where the
    body is large, in a child process."""
    ndjson = bodies.content_type(request) == bodies.NDJSON
    max_mb = context.settings.max_ndjson_mb if ndjson else context.settings.max_json_mb
    store_body = _submit_ndjson if ndjson else _submit_json
    query = dict(request.query_params)
    small_bytes = min(_SMALL_BYTES, context.payloads.over_bytes)
    if not ndjson and bodies.is_declared_within(request, small_bytes):
        raw = b""
        async for chunk in bodies.chunks(request, small_bytes):
            raw += chunk
            if upload:
                upload.add(chunk)
        claim = upload.finish() if upload else None
        if response := await _store_small(context, caller, raw, claim):
            return response
        return await _on_thread(context, io.BytesIO(raw), store_body, caller, query, claim)
    meter = context.upload_meter.begin(caller, JOB_SHARE)
    on_chunk = upload.add if upload else None
    async with bodies.spooled(request, max_mb * _MIB, meter, on_chunk) as body:
        claim = upload.finish() if upload else None
        return await take(context, body, store_body, caller, query, claim)


async def take(
    context: Context, body: IO[bytes], store_body: StoreBody, caller: Caller,
    query: dict[str, str], claim: Claim | None, *, is_heavy: bool = False,
) -> Response:  # fmt: skip
    """Stores the job of a spooled body, unless its key has a response: in a child process where
    the body is large or `is_heavy`, else on a thread. store_body: a function of a module."""
    if is_heavy or bodies.is_heavy_file(body):
        return await context.ingest_pool.run(
            caller.tenant, _once, body, store_body, caller, query, claim
        )
    return await _on_thread(context, body, store_body, caller, query, claim)


async def _store_small(
    context: Context, caller: Caller, raw: bytes, claim: Claim | None
) -> Response | None:
    """Stores a job of a few items in a transaction with others.

    Returns None for any other job, for one near its tenant's limits, and for one that is refused
    where its Idempotency-Key may have a response: a thread decides.
    """
    async with context.small_job_turns.place(caller.tenant):
        try:
            submission = _small_submission(context, caller, raw, claim)
        except MillraceError:
            if claim:
                return None
            raise
        if submission is None:
            return None
        if not fits(context.database, submission):
            submission.close()
            return None
        stored = await context.group_commit.store(submission)
    if isinstance(stored, StoredResponse):
        return _accepted(stored.job_id, stored.answer.encode(), idempotency.REPLAYED)
    return _accepted(stored.id, jobs.job_json(stored))


def _small_submission(
    resources: Resources, caller: Caller, raw: bytes, claim: Claim | None
) -> Submission | None:
    """Checks a job that takes little time to check; returns None for any other."""
    fields = validation.parse_json(raw.removeprefix(BOM_UTF8))
    items = fields.get("items") if isinstance(fields, dict) else None
    if not isinstance(items, list) or len(items) > _SMALL_ITEMS:
        return None
    if not _ELSEWHERE.isdisjoint(fields):
        return None
    del fields["items"]
    faults: list[Fault] = []
    order, _ = _read_order(resources, caller, fields, faults)
    return prepare(
        resources.models_of(caller.tenant),
        caller.tenant,
        order,
        array=items,
        **_details(resources, caller, faults, claim),
    )


async def _on_thread(
    context: Context, body: IO[bytes], store_body: StoreBody, caller: Caller,
    query: dict[str, str], claim: Claim | None,
) -> Response:  # fmt: skip
    async with context.submission_turns.place(caller.tenant):
        return await run_in_threadpool(_once, context, body, store_body, caller, query, claim)


def _once(
    resources: Resources, body: IO[bytes], store_body: StoreBody, caller: Caller,
    query: dict[str, str], claim: Claim | None,
) -> Response:  # fmt: skip
    """Returns the stored response of the key, else stores the job. Arguments, response and errors
    can be pickled."""
    if claim:
        with resources.acting(claim.tenant) as tx:
            stored = find(tx, claim)
        if stored:
            return _accepted(stored.job_id, stored.answer.encode(), idempotency.REPLAYED)
    return store_body(resources, caller, query, body, claim)


def _accepted(job_id: UUID, job: bytes, extra: dict[str, str] | None = None) -> Response:
    headers = {"Location": f"/jobs/{ids.show('job', job_id)}", **(extra or {})}
    return JsonBytes(job, headers, 202)


def _submit_json(
    resources: Resources,
    caller: Caller,
    query: dict[str, str],
    body: IO[bytes],
    claim: Claim | None,
) -> Response:
    fields = validation.parse_json(body.read().removeprefix(BOM_UTF8))
    if not isinstance(fields, dict):
        raise Malformed("the body must be a JSON object")
    faults: list[Fault] = []
    if "input" in fields:
        if "items" in fields:
            message = "send items, or the input that they are read from, not both"
            faults.append(Fault(("input",), "both", message))
        fields.pop("items", None)
        return store(resources, caller, fields, faults, claim, source=fields.pop("input"))
    array = fields.pop("items", [])
    if not isinstance(array, list):
        faults.append(Fault(("items",), "type", "items must be an array"))
        array = []
    return store(resources, caller, fields, faults, claim, array=array)


def _submit_ndjson(
    resources: Resources,
    caller: Caller,
    query: dict[str, str],
    body: IO[bytes],
    claim: Claim | None,
) -> Response:
    faults = []
    fields: dict[str, Any] = dict(query)
    for name in _JSON_PARAMETERS:
        if name in fields:
            try:
                raw = fields[name].encode("utf-8", "surrogatepass")
                fields[name] = validation.parse_json(raw)
            except (Invalid, Malformed) as error:
                its = error.faults or [Fault((), "malformed", error.detail)]
                faults += [replace(fault, loc=(name, *fault.loc)) for fault in its]
                del fields[name]
    for name, kind in (("priority", int), ("expires_in_s", _seconds)):
        if name in fields:
            try:
                fields[name] = kind(fields[name])
            except ValueError:
                faults.append(Fault((name,), "type", "must be a number"))
                del fields[name]
    return store(resources, caller, fields, faults, claim, lines=partial(bounded_lines, body))


def _seconds(text: str) -> float | None:
    return None if text == "null" else float(text)


def store(
    resources: Resources,
    caller: Caller,
    fields: dict[str, Any],
    faults: list[Fault],
    claim: Claim | None,
    *,
    source: Any = None,
    array: list[Any] | None = None,
    lines: ReadLines | None = None,
    also: AlsoStore = nothing_else,
) -> Response:
    """Stores a job, or raises Invalid with `faults` and all others. `source` names where the items
    are read from, as it was sent; else they are in `array` or `lines`. also: see `submit`."""
    order, target = _read_order(resources, caller, fields, faults)
    if array is None and lines is None:
        row = submit_source(
            resources.database,
            resources.models_of(caller.tenant),
            caller.tenant,
            order,
            _source(resources, caller, source, faults),
            target=target,
            faults=faults,
            claim=claim,
            limits=caller.limits,
            key=caller.key_id,
        )
        return _accepted(row.id, jobs.job_json(row))
    models = resources.models_of(caller.tenant)
    model = models.resolve(order.model, caller.tenant)
    row = submit(
        resources.database,
        models,
        caller.tenant,
        order,
        notifier=resources.notifier,
        array=array,
        lines=lines and lines(model.max_line_bytes),
        target=target,
        also=also,
        **_details(resources, caller, faults, claim),
    )
    return _accepted(row.id, jobs.job_json(row))


def _read_order(
    resources: Resources, caller: Caller, fields: dict[str, Any], faults: list[Fault]
) -> tuple[Order, dict[str, Any] | None]:
    """Returns the order and its target as it is stored; problems are added to `faults`. Raises
    Invalid where no model is named."""
    model = fields.get("model")
    order = Order(model=model if isinstance(model, str) else "")
    target = None
    try:
        requested = JobRequest.model_validate(fields)
        order = Order(**{name: getattr(requested, name) for name in Order.__slots__})
        faults += url_faults(resources.settings, order.webhook_url, ("webhook", "url"))
        target = transfers.target_of(resources, caller, requested.output, faults)
    except ValidationError as error:
        faults += faults_of(error.errors(include_url=False))
    if any(fault.loc[:1] == ("model",) for fault in faults):
        raise Invalid("the model is missing or no name", faults=faults)
    return order, target


def _details(
    resources: Resources, caller: Caller, faults: list[Fault], claim: Claim | None
) -> dict[str, Any]:
    """Returns arguments of `prepare` for a job whose items are in the request."""
    return {
        "faults": faults,
        "max_items": resources.settings.max_items,
        "max_bytes": resources.settings.max_spool_mb * _MIB,
        "floor": DiskFloor.from_settings(resources.settings),
        "claim": claim,
        "payloads": resources.payloads,
        "limits": caller.limits,
        "key": caller.key_id,
    }


def _source(
    resources: Resources, caller: Caller, requested: Any, faults: list[Fault]
) -> dict[str, Any]:
    try:
        job_input = JobInput.model_validate(requested)
    except ValidationError as error:
        faults += faults_of(error.errors(include_url=False), ("input",))
        return {}
    return transfers.source_of(resources, caller, job_input, faults)
