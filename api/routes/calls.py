"""POST /infer: lean, asynchronous, and without the database."""

from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from api import bodies
from api.context import Shared, Tenant
from api.errors import faults_of
from api.schemas import CallAnswer, CallRequest
from jobs import clock, ids, items
from jobs.errors import Fault, Invalid, Malformed, MillraceError
from jobs.registry import Model

router = APIRouter(tags=["calls"])

_DOC = {
    "requestBody": {
        "required": True,
        "content": {bodies.JSON: {"schema": {"$ref": "#/components/schemas/CallRequest"}}},
    }
}
_REFUSALS = {"invalid_input": Invalid, "engine_error": MillraceError}


@router.post("/infer", response_model=CallAnswer, openapi_extra=_DOC)
async def infer(request: Request, shared: Shared, tenant: Tenant) -> Response:
    """One call, answered within its deadline or refused."""
    since_s = clock.monotonic()
    bodies.media_type(request, bodies.JSON)
    if "idempotency-key" in request.headers:
        raise Malformed("Idempotency-Key is not supported yet; send the request without it")
    asked = _parse(await bodies.whole(request, shared.settings.max_json_mb << 20))
    model = shared.models.resolve(asked.model)
    _check(model, asked)
    id = ids.show("call", ids.new())
    output, error, units, timing = await shared.calls.infer(
        id, model, tenant, asked.input, asked.params, asked.timeout_ms
    )
    if error is not None:
        code, message = error
        raise _REFUSALS.get(code, MillraceError)(message, faults=[Fault(("input",), code, message)])
    timing["total_ms"] = round((clock.monotonic() - since_s) * 1000, 3)
    answer = {
        "id": id,
        "model": model.name,
        "version": model.version,
        "output": output,
        "usage": {model.kind.unit: units},
        "timing": timing,
    }
    return Response(orjson.dumps(answer), media_type=bodies.JSON)


def _parse(raw: bytes) -> CallRequest:
    value: Any = items.parse_json(raw)
    try:
        return CallRequest.model_validate(value)
    except ValidationError as error:
        faults = faults_of(error.errors(include_url=False))
        detail = "; ".join(f"{'.'.join(map(str, f.loc))}: {f.message}" for f in faults)
        raise Invalid(detail or "not a call", faults=faults) from None


def _check(model: Model, asked: CallRequest) -> None:
    wrapped = {"input": asked.input, "params": asked.params}
    item = items.check(wrapped, (), None, model, True)
    if isinstance(item, list):
        raise Invalid("; ".join(fault.message for fault in item), faults=item)
