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
from api.http import bodies, idempotency
from jobs import clock, ids
from jobs.calls.messages import COUNTED
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
    key = idempotency.read_key(request, required=False)
    raw = await _body(request, context, caller)
    since_s = clock.monotonic()
    prepared = await _prepared(context, caller, api, raw)
    body, rate_limit_headers = prepared.body, dict[str, str]()
    made = Answer(ids.new_shown("call"), int(clock.now().timestamp()), prepared)
    open_session = partial(
        context.inference_session,
        request, caller, "interactive", body.timeout_ms, since_s, rate_limit_headers,
    )  # fmt: skip
    if body.stream:
        idempotency.refuse_for_stream(key)
        return await answer_by_events(
            open_session(),
            orjson.Fragment(prepared.value),
            iter(prepared.plans),
            body.deadlines if prepared.streams else None,
            api.events(made),
            made.call_id,
        )

    async def whole() -> bytes:
        with open_session() as session:
            return orjson.dumps(api.whole(made, await _call(session, made)))

    if key is None and context.settings.require_idempotency_key:
        raise idempotency.missing()
    if key is None:
        return Response(await whole(), headers=rate_limit_headers, media_type=bodies.JSON)
    # The same body means something else on another route.
    claim = await idempotency.claim_of(request, caller.tenant, key, api.path.encode(), raw)
    content, replayed = await context.response_cache.once(claim, body.timeout_ms, whole)
    headers = idempotency.REPLAYED if replayed else rate_limit_headers
    return Response(content, headers=headers, media_type=bodies.JSON)


async def count_tokens(
    request: Request, context: Context, caller: Caller, api: GenerationApi
) -> int:
    """Returns the tokens of a request's prompt: a worker whose model has a tokenizer counts them,
    by a call that generates nothing; of other models they are estimated."""
    raw = await _body(request, context, caller)
    since_s = clock.monotonic()
    prepared = await _prepared(context, caller, api, raw)
    if not prepared.has_tokenizer:
        return prepared.size
    value = orjson.Fragment(b'{"%b":%b}' % (COUNTED.encode(), prepared.value))
    open_session = context.inference_session(
        request, caller, "interactive", prepared.body.timeout_ms, since_s, {}
    )
    with open_session as session:  # another model would count other tokens: no fallback
        result = await session.call(value, islice(prepared.plans, 1))
    counted: int = orjson.loads(result.output)["input_tokens"]
    return counted


async def _body(request: Request, context: Context, caller: Caller) -> bytes:
    bodies.media_type(request, bodies.JSON)
    return await context.call_bodies.read(request, context.models.max_line_bytes, caller.tenant)


async def _prepared(
    context: Context, caller: Caller, api: GenerationApi, raw: bytes
) -> PreparedGeneration:
    models, statuses = context.models, context.gateway.model_statuses
    if bodies.is_heavy(raw):
        versions = await statuses.choose_all(models)
        run = context.call_preparation.run
        return await run(caller.tenant, prepare_heavy, raw, versions, api.read)
    body = api.read(validation.parse_json(raw))
    model = await statuses.choose(models.versions(body.model))
    return prepare_light(models, model, body)


async def _call(session: InferenceSession, made: Answer) -> CallResult:
    session = replace(session, call_id=made.call_id)
    value = orjson.Fragment(made.prepared.value)
    return await session.call(value, iter(made.prepared.plans))
