"""Answering of a generation request: as one response, or as a stream of events."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import orjson
from fastapi import Request, Response

from api.compat.generation.preparation import (
    BodyReader,
    PreparedGeneration,
    prepare_heavy,
    prepare_light,
)
from api.context import Context
from api.gateway.inference import CallResult, InferenceSession
from api.gateway.streaming.event_stream import EventWriter, answer_by_events
from api.gateway.streaming.resuming import StreamRequest
from api.http import bodies, idempotency
from api.http.connections.connection import arrived_s
from api.http.responses import JsonBytes
from jobs import ids
from jobs.calls.messages import COUNTED, TOLD, Told
from jobs.identity import Caller
from jobs.intake import validation

_CALL = "call_"


@dataclass(frozen=True, slots=True)
class Answer:
    """Identity of one answer, which all its parts share."""

    call_id: str
    created: int  #: seconds since 1970
    prepared: PreparedGeneration

    def id(self, prefix: str) -> str:
        """Returns the id of the answer, with the digits of the call's."""
        return prefix + self.call_id.removeprefix(_CALL)


@dataclass(frozen=True, slots=True)
class GenerationApi:
    """One API by which requests come and answers go."""

    path: str
    read: BodyReader
    whole: Callable[[Answer, CallResult], Any]  #: value of the response
    events: Callable[[Answer], EventWriter]


async def answer(
    request: Request, context: Context, caller: Caller, api: GenerationApi
) -> Response:
    """Makes the call of a request, and returns its response."""
    key, asked = idempotency.read_key(request, required=False), StreamRequest.read(request)
    raw = await read_raw(request, context, caller)
    since_s = arrived_s(request.scope)
    prepared = await prepare(request, context, caller, api.read, raw, key)
    body, response_headers = prepared.body, dict[str, str]()
    call_id = asked.call_id if body.stream else ids.new_shown("call")
    made = Answer(call_id, int(ids.made_at("call", call_id)), prepared)
    open_session = partial(
        context.inference_session,
        request, caller, "interactive", body.timeout_ms, since_s, response_headers,
    )  # fmt: skip
    if body.stream:
        idempotency.refuse_for_stream(key)
        if asked.after:
            gateway, tenant, plans = context.gateway, caller.tenant, prepared.plans
            stream = await asked.resume(gateway, context.models, tenant, asked.after, plans)
        else:
            stream = asked.begin(call_id, orjson.Fragment(prepared.value), prepared.plans)
        deadlines = body.deadlines if prepared.streams else None
        return await answer_by_events(
            open_session(), stream, deadlines, api.events(made), has_ids=asked.comes_back
        )

    async def whole() -> bytes:
        with open_session() as session:
            return orjson.dumps(api.whole(made, await call(session, made)))

    if key is None and context.settings.require_idempotency_key:
        raise idempotency.missing()
    if key is None:
        return JsonBytes(await whole(), response_headers)
    # The same body means something else on another route.
    claim = await idempotency.claim_of(request, caller.tenant, key, api.path.encode(), raw)
    content, replayed = await context.response_cache.once(claim, body.timeout_ms, whole)
    headers = idempotency.REPLAYED if replayed else response_headers
    return JsonBytes(content, headers)


async def count_tokens(
    request: Request, context: Context, caller: Caller, read: BodyReader, raw: bytes
) -> int:
    """Returns the tokens of a request's prompt: a worker whose model has a tokenizer counts them,
    by a call that generates nothing; of other models they are estimated."""
    prepared = await prepare(request, context, caller, read, raw)
    if not prepared.has_tokenizer:
        return prepared.size
    counted: int = (await ask_tokenizer(request, context, caller, prepared, ""))["input_tokens"]
    return counted


async def ask_tokenizer(
    request: Request, context: Context, caller: Caller, prepared: PreparedGeneration, told: Told
) -> dict[str, Any]:
    """Returns what a worker tells of a request's prompt, by a call that generates nothing."""
    asked = {COUNTED: orjson.Fragment(prepared.value), **({TOLD: told} if told else {})}
    value = orjson.Fragment(orjson.dumps(asked))
    since_s, timeout_ms = arrived_s(request.scope), prepared.body.timeout_ms
    open_session = context.inference_session(
        request, caller, "interactive", timeout_ms, since_s, {}
    )
    with open_session as session:  # another model would count other tokens: no fallback
        plans = (replace(plan, cohort="", shadow=None) for plan in islice(prepared.plans, 1))
        result = await session.call(value, plans)
    found: dict[str, Any] = orjson.loads(result.output)
    return found


async def read_raw(request: Request, context: Context, caller: Caller) -> bytes:
    """Returns the body of a request, in memory."""
    bodies.media_type(request, bodies.JSON)
    return await context.call_bodies.read(request, context.models.max_line_bytes, caller.tenant)


async def prepare(
    request: Request,
    context: Context,
    caller: Caller,
    read: BodyReader,
    raw: bytes,
    key: str | None = None,
) -> PreparedGeneration:
    """Checks a body against its model, a large one in a child process. key: its
    Idempotency-Key."""
    models, router, tenant = context.models_of(caller.tenant), context.router, caller.tenant
    if bodies.is_heavy(raw):
        ready = await router.ready_versions(models, request, tenant, key=key)
        prepared = await context.call_preparation.run(
            request, tenant, prepare_heavy, raw, ready, read
        )
        router.record(prepared.target, ready.asker)
        return prepared
    body = read(validation.parse_call(raw))
    target = await router.route(models, body.model, request, tenant, key=key, user=body.user)
    return prepare_light(models, target, body)


async def call(session: InferenceSession, made: Answer) -> CallResult:
    """Makes the call of an answer."""
    session = replace(session, call_id=made.call_id)
    value = orjson.Fragment(made.prepared.value)
    return await session.call(value, iter(made.prepared.plans))
