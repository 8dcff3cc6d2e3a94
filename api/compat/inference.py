"""POST /api/inference: a text in, a text out, as the batchstring service of interview books has it.

Off unless MILLRACE_INFERENCE_MODEL names the model that answers. Calls are those of POST /infer.
"""

import math
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from api.context import ContextDep
from api.dependencies import Inferrer
from api.http import bodies, idempotency
from api.http.connections.connection import arrived_s
from api.http.errors import ERROR_FORMATS, ERROR_STATUSES, validated
from api.http.request_id import call_id, request_id
from api.routes.calls import prepared_call, respond
from api.schemas.calls import CallRequest
from api.schemas.common import Body
from jobs import clock
from jobs.errors import (
    DeadlinePassed,
    MillraceError,
    NotFound,
    QuotaExceeded,
    SpendCap,
    TooLarge,
    TooLate,
)
from jobs.intake import validation

router = APIRouter()
PATH = "/api/inference"

_OVERLOADED = "SERVICE_OVERLOADED"
_CODES = {
    TooLate.code: _OVERLOADED,
    QuotaExceeded.code: "RATE_LIMITED",
    SpendCap.code: "RATE_LIMITED",
    DeadlinePassed.code: "TIMEOUT",
}
_BY_STATUS = {503: _OVERLOADED, 401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND"}


class Text(Body):
    """Body of a request."""

    input: str


@router.post(PATH, include_in_schema=False)
async def infer(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """One call of the model that the settings name, answered within its deadline or refused."""
    name = context.settings.inference_model
    if not name:
        raise NotFound(f"POST {PATH} is off: MILLRACE_INFERENCE_MODEL names no model")
    bodies.media_type(request, bodies.JSON)
    key = idempotency.read_key(request, required=context.settings.require_idempotency_key)
    models = context.models_of(caller.tenant)
    raw = await context.call_bodies.read(request, models.max_line_bytes, caller.tenant)
    since_s = arrived_s(request.scope)
    if bodies.is_heavy(raw):
        raise TooLarge(f"{len(raw)} bytes are too many here: POST /infer takes longer texts")
    text = validated(Text, validation.parse_call(raw)).input
    target = await context.router.route(models, name, request, caller.tenant, key=key)
    prepared = prepared_call(models, target, CallRequest(model=name, input=text))
    headers: dict[str, str] = {}
    open_session = partial(
        context.inference_session,
        request, caller, prepared.job_class, prepared.timeout_ms, since_s, headers,
    )  # fmt: skip

    async def answer() -> bytes:
        with open_session(call_id=call_id(request.scope)) as session:
            result = await session.call(orjson.Fragment(prepared.value), iter(prepared.plans))
        body = {
            "output": orjson.Fragment(result.output),
            "request_id": request_id(request.scope),
            "latency_ms": round((clock.monotonic() - since_s) * 1000, 3),
        }
        return orjson.dumps(body)

    return await respond(request, context, caller, key, raw, prepared.timeout_ms, answer, headers)


def _error_object(error: MillraceError, id: str) -> dict[str, Any]:
    code = _CODES.get(error.code) or _BY_STATUS.get(error.status)
    code = code or ("INTERNAL_ERROR" if error.status >= 500 else "INVALID_REQUEST")
    body: dict[str, Any] = {"error": code, "message": error.detail, "request_id": id}
    if error.retry_after_s is not None:
        body["retry_after_ms"] = math.ceil(error.retry_after_s * 1000)
    return body


ERROR_FORMATS[PATH] = (bodies.JSON, _error_object)
ERROR_STATUSES[PATH] = {TooLate.code: 503}  # this API keeps 429 for limits of the caller
