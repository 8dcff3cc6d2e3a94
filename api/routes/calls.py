"""POST /infer: asynchronous, and without the database."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

import orjson
from fastapi import APIRouter, Request, Response

from api.context import Context, ContextDep
from api.dependencies import Inferrer
from api.gateway import metrics
from api.gateway.fallbacks import fallback_plans
from api.gateway.inference import InferenceSession
from api.gateway.prepared import PreparedCall, check_length
from api.gateway.routing.target import ReadyVersions, Target
from api.gateway.streaming.call_events import CallEvents
from api.gateway.streaming.event_stream import answer_by_events
from api.gateway.streaming.inbox import StreamDeadlines
from api.gateway.streaming.resuming import StreamRequest, made_s, stream_doc
from api.http import bodies, idempotency
from api.http.connections.connection import arrived_s
from api.http.errors import validated
from api.http.request_id import call_id
from api.http.responses import JsonBytes
from api.schemas.calls import MAX_CALL_TIMEOUT_MS, CallRequest, CallResponse
from api.services.call_preparation import end_after
from jobs import clock
from jobs.errors import Fault, Invalid
from jobs.identity import Caller
from jobs.intake import validation
from jobs.models.registry import Registry

router = APIRouter(tags=["calls"])
PATH = "/infer"


@router.post(
    PATH,
    response_model=CallResponse,
    openapi_extra=stream_doc(idempotency.request_doc("CallRequest")),
    responses={200: idempotency.REPLAY_HEADER_DOC},
)
async def infer(request: Request, context: ContextDep, caller: Inferrer) -> Response:
    """One call, answered within its deadline or refused."""
    bodies.media_type(request, bodies.JSON)
    key = idempotency.read_key(request, required=False)
    models = context.models_of(caller.tenant)
    raw = await context.call_bodies.read(request, models.max_line_bytes, caller.tenant)
    required = context.settings.require_idempotency_key
    return await answer_call(request, context, caller, raw, key, key_required=required)


async def answer_call(
    request: Request, context: Context, caller: Caller, raw: bytes, key: str | None,
    *, key_required: bool,
) -> Response:  # fmt: skip
    """Makes the call of a body that was read, and returns its response. key_required: a call that
    doesn't stream needs an Idempotency-Key."""
    since_s = arrived_s(request.scope)
    models = context.models_of(caller.tenant)
    router, tenant = context.router, caller.tenant
    if bodies.is_heavy(raw):
        ready = await router.ready_versions(models, request, tenant, key=key)
        prepared = await context.call_preparation.run(request, tenant, prepare, raw, ready)
        router.record(prepared.target, ready.asker)
    else:
        call = validated(CallRequest, validation.parse_call(raw))
        target = await router.route(models, call.model, request, tenant, key=key)
        prepared = prepared_call(models, target, call)

    response_headers: dict[str, str] = {}
    open_session = partial(
        context.inference_session,
        request, caller, prepared.job_class, prepared.timeout_ms, since_s, response_headers,
    )  # fmt: skip
    if prepared.stream:
        idempotency.refuse_for_stream(key)
        asked = StreamRequest.read(request)
        if asked.after:
            gateway, plans = context.gateway, prepared.plans
            stream = await asked.resume(gateway, models, tenant, asked.after, plans)
            since_s = made_s(asked.after.call_id)
        else:
            stream = asked.begin(asked.call_id, orjson.Fragment(prepared.value), prepared.plans)
        return await answer_by_events(open_session(), stream, prepared.stream, CallEvents(since_s))

    async def answer() -> bytes:
        with open_session(call_id=call_id(request.scope)) as session:
            return await _call(session, prepared)

    if key is None and key_required:
        raise idempotency.missing()
    return await respond(
        request, context, caller, key, raw, prepared.timeout_ms, answer, response_headers
    )


async def respond(
    request: Request,
    context: Context,
    caller: Caller,
    key: str | None,
    raw: bytes,
    timeout_ms: int,
    answer: Callable[[], Awaitable[bytes]],
    response_headers: Mapping[str, str],
) -> Response:
    """Returns the response of a call, or that of an earlier one under its Idempotency-Key.

    raw: the request's body. answer: makes the call, and fills response_headers.
    """
    if key is None:
        return JsonBytes(await answer(), response_headers)
    claim = await idempotency.claim_of(request, caller.tenant, key, raw)
    body, replayed = await context.response_cache.once(claim, timeout_ms, answer)
    headers = idempotency.REPLAYED if replayed else response_headers
    return JsonBytes(body, headers)


def prepare(models: Registry, raw: bytes, ready: ReadyVersions) -> PreparedCall:
    """Parses and checks a body, in a child process."""
    call = validated(CallRequest, validation.parse_call(raw))
    if not call.stream:
        end_after(call.timeout_ms)
    target = ready.target(models, call.model)
    check_length(raw, target.model)
    prepared = prepared_call(models, target, call)
    return replace(prepared, plans=tuple(prepared.plans))


async def _call(session: InferenceSession, prepared: PreparedCall) -> bytes:
    result = await session.call(orjson.Fragment(prepared.value), iter(prepared.plans))
    plan = result.plan
    usage = {plan.model.spec.unit: result.units}
    if result.truncated:
        usage["truncated"] = result.truncated
    total_ms = round((clock.monotonic() - session.since_s) * 1000, 3)
    body = {
        "id": result.id,
        "model": plan.model.name,
        "version": plan.model.version,
        "output": orjson.Fragment(result.output),
        "usage": usage,
        "timing": {
            "gateway_ms": metrics.gateway_ms(total_ms, result.timing),
            **result.timing,
            "total_ms": total_ms,
        },
    }
    if plan.degraded:
        body["degraded"] = plan.degraded
    return orjson.dumps(body)


def prepared_call(models: Registry, target: Target, call: CallRequest) -> PreparedCall:
    """Checks a call. Raises Invalid."""
    model = target.model
    if model.split_inputs(call.input) is not None:
        message = (
            f"{model.key} takes one input a call, not a list of them: "
            "send the list to POST /v1/embeddings, or make several calls"
        )
        raise Invalid(message, faults=[Fault(("input",), "type", message)])
    plain = isinstance(call.input, str) and not call.params  # the common case
    item = validation.check(call.input, (), None, model, True) if plain else []
    if isinstance(item, list):
        wrapped = {"input": call.input, "params": call.params}
        item = validation.check(wrapped, (), None, model, True)
    if isinstance(item, list):
        raise Invalid("; ".join(fault.message for fault in item), faults=item)
    plans = fallback_plans(models, target, call.input, call.params)
    if not call.stream:
        return PreparedCall(item.input, plans, call.timeout_ms, call.call_class, target)
    if not model.spec.generates:
        message = f"{model.key} can't stream: its output comes in one piece"
        raise Invalid(message, faults=[Fault(("stream",), "not_supported", message)])
    timeout_ms = call.timeout_ms if "timeout_ms" in call.model_fields_set else MAX_CALL_TIMEOUT_MS
    deadlines = StreamDeadlines(call.first_token_ms, call.idle_ms)
    return PreparedCall(item.input, plans, timeout_ms, call.call_class, target, deadlines)
