"""Submitting a job: as one JSON document, or as a stream of lines."""

from typing import IO, Any

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError

from api import bodies
from api.context import Context, Shared, Tenant
from api.errors import faults_of
from api.routes.common import json_response
from api.schemas import Job, JobRequest
from jobs import ids, items, ssrf, views
from jobs.errors import Fault, Invalid, Malformed
from jobs.intake import bounded_lines
from jobs.settings import Settings
from jobs.ssrf import AllowList
from jobs.submit import Order, submit

router = APIRouter(tags=["jobs"])

_MIB = 1 << 20
_JSON_PARAMETERS = ("params", "metadata", "webhook")

_SUBMIT_DOC: dict[str, Any] = {
    "parameters": [
        {
            "name": name,
            "in": "query",
            "description": f"with an NDJSON body: {field.description or 'as in the JSON body'}",
            "schema": {"type": "string"},
        }
        for name, field in ((f.alias or name, f) for name, f in JobRequest.model_fields.items())
    ],
    "requestBody": {
        "required": True,
        "content": {
            bodies.JSON: {"schema": {"$ref": "#/components/schemas/JobWithItems"}},
            bodies.NDJSON: {"schema": {"type": "string", "description": "one item a line"}},
        },
    },
}


@router.post("/jobs", status_code=202, response_model=Job, openapi_extra=_SUBMIT_DOC)
async def submit_job(request: Request, shared: Shared, tenant: Tenant) -> Response:
    """Stores a job; 202 once it is committed. Body: a JSON object with `items`, or NDJSON, one
    item a line, with everything else as query parameters (objects as JSON)."""
    kind = bodies.media_type(request, bodies.JSON, bodies.NDJSON)
    if "idempotency-key" in request.headers:
        raise Malformed("Idempotency-Key is not supported yet; send the request without it")
    settings = shared.settings
    ndjson = kind == bodies.NDJSON
    most = settings.max_ndjson_mb if ndjson else settings.max_json_mb
    async with bodies.spooled(request, most * _MIB) as body:
        take = _submit_ndjson if ndjson else _submit_json
        query = dict(request.query_params)
        return await run_in_threadpool(take, shared, tenant, query, body)


def _submit_json(shared: Context, tenant: str, query: dict[str, str], body: IO[bytes]) -> Response:
    fields = items.parse_json(body.read())
    if not isinstance(fields, dict):
        raise Malformed("the body must be a JSON object")
    array = fields.pop("items", [])
    faults = []
    if not isinstance(array, list):
        faults.append(Fault(("items",), "type", "items must be an array"))
        array = []
    return _store(shared, tenant, fields, faults, array=array)


def _submit_ndjson(
    shared: Context, tenant: str, query: dict[str, str], body: IO[bytes]
) -> Response:
    faults = []
    fields: dict[str, Any] = dict(query)
    for name in _JSON_PARAMETERS:
        if name in fields:
            try:
                fields[name] = orjson.loads(fields[name])
            except orjson.JSONDecodeError as error:
                faults.append(Fault((name,), "malformed", f"not valid JSON: {error}"))
                del fields[name]
    for name, kind in (("priority", int), ("expires_in_s", _seconds)):
        if name in fields:
            try:
                fields[name] = kind(fields[name])
            except ValueError:
                faults.append(Fault((name,), "type", "must be a number"))
                del fields[name]
    return _store(shared, tenant, fields, faults, lines=body)


def _webhook_faults(settings: Settings, url: str | None) -> list[Fault]:
    if url is None:
        return []
    if no := ssrf.refuse_url(url, AllowList.parse(settings.webhook_allow)):
        return [Fault(("webhook", "url"), *no)]
    if not settings.secret_key:
        why = "webhooks can't be signed here: MILLRACE_SECRET_KEY is not set"
        return [Fault(("webhook",), "not_configured", why)]
    return []


def _seconds(text: str) -> float | None:
    return None if text == "null" else float(text)


def _store(
    shared: Context,
    tenant: str,
    fields: dict[str, Any],
    faults: list[Fault],
    *,
    lines: IO[bytes] | None = None,
    **source: Any,
) -> Response:
    order = Order(model=str(fields.get("model")))
    try:
        asked = JobRequest.model_validate(fields)
        order = Order(**{name: getattr(asked, name) for name in Order.__slots__})
        faults += _webhook_faults(shared.settings, order.webhook_url)
    except ValidationError as error:
        faults += faults_of(error.errors(include_url=False))
    if any(fault.loc[:1] == ("model",) for fault in faults):
        raise Invalid("the model is missing or no name", faults=faults)
    if lines is not None:
        most_bytes = shared.models.resolve(order.model).max_line_bytes
        source["lines"] = bounded_lines(lines, most_bytes)
    row = submit(
        shared.database,
        shared.models,
        tenant,
        order,
        faults=faults,
        max_items=shared.settings.max_items,
        **source,
    )
    location = {"Location": f"/jobs/{ids.show('job', row['id'])}"}
    return json_response(views.job_object(row), 202, location)
