"""Responses of calls: whole, or streamed; stored before their last event is sent."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from functools import partial
from typing import Any

import orjson
from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool

from api.compat.generation import answering
from api.compat.generation.answering import Answer
from api.compat.openai.conversations import stored as conversations
from api.compat.openai.responses import stored
from api.compat.openai.responses.events import ResponseEvents, now
from api.compat.openai.responses.requests import ResponseBody
from api.context import Context
from api.gateway.fallbacks import FallbackPlan
from api.gateway.inference import CallResult, InferenceSession
from api.gateway.streaming.event_stream import STATUS_WITHIN_S, answer_by_events
from api.gateway.streaming.resuming import StreamRequest
from api.http import idempotency
from api.http.responses import JsonBytes
from jobs import clock
from jobs.dialects.completions import completion_of
from jobs.dialects.responses.objects import PREFIX, failed, output_of, response_object
from jobs.errors import MillraceError
from jobs.identity import Caller
from jobs.immutable import immutable
from jobs.intake.idempotency_key import Claim
from jobs.store.db import Tx
from jobs.store.jobs import responses as store
from jobs.store.jobs.responses import NewResponse

OnEnd = Callable[[CallResult | MillraceError], Awaitable[None]]
"""Gets the result of a call, or the error that it failed with, before anybody else does."""


@immutable
class StoringSession(InferenceSession):
    """Session whose call has ended only once its response is stored."""

    on_end: OnEnd | None = None

    # Not super(): it doesn't know the class that `slots` makes.

    async def call(self, value: Any, plans: Iterator[FallbackPlan]) -> CallResult:
        """Makes a call, as `InferenceSession.call`."""
        return await self._ending(InferenceSession.call(self, value, plans))

    async def resume(self, plan: FallbackPlan) -> CallResult:
        """Takes over a call, as `InferenceSession.resume`."""
        return await self._ending(InferenceSession.resume(self, plan))

    async def _ending(self, call: Coroutine[Any, Any, CallResult]) -> CallResult:
        assert self.on_end is not None
        try:
            result = await call
        except MillraceError as error:
            if self.inbox is not None and self._has_begun() and not self._goes_on(error):
                await self.on_end(error)
            raise
        await self.on_end(result)
        return result

    def _has_begun(self) -> bool:
        """Returns True once the client has the stream's beginning, and with it the id."""
        return clock.monotonic() - self.since_s >= STATUS_WITHIN_S or bool(self._token_ms())


@contextmanager
def _storing(
    opened: AbstractContextManager[InferenceSession], on_end: OnEnd
) -> Iterator[StoringSession]:
    with opened as session:
        values = {each.name: getattr(session, each.name) for each in fields(InferenceSession)}
        yield StoringSession(**values, on_end=on_end)


class ForegroundResponse:
    """One response of a call."""

    def __init__(
        self, request: Request, context: Context, caller: Caller, made: Answer, since_s: float
    ) -> None:
        body = made.prepared.body
        assert isinstance(body, ResponseBody)
        self._context, self._caller, self._made, self._body = context, caller, made, body
        self._ended_at: int | None = None
        self._rate_limit_headers: dict[str, str] = {}
        self._open = partial(
            context.inference_session,
            request, caller, "interactive", body.timeout_ms, since_s, self._rate_limit_headers,
        )  # fmt: skip

    async def stream(self, asked: StreamRequest) -> Response:
        """Returns the response that streams it, or its rest."""
        made, context = self._made, self._context
        prepared = made.prepared
        if asked.after:
            tenant = self._caller.tenant
            call = await asked.resume(
                context.gateway, context.models, tenant, asked.after, prepared.plans
            )
        else:
            call = asked.begin(made.call_id, orjson.Fragment(prepared.value), prepared.plans)
        deadlines = self._body.deadlines if prepared.streams else None
        writer = ResponseEvents(made, self._end_time)
        ids = asked.comes_back
        return await answer_by_events(self._session(), call, deadlines, writer, has_ids=ids)

    async def whole(self, claim: Claim | None) -> Response:
        """Returns it as one response. claim: its Idempotency-Key."""
        if claim is None:
            content, headers = await self._content(), self._rate_limit_headers
            return JsonBytes(content, headers)
        cache, timeout_ms = self._context.response_cache, self._body.timeout_ms
        content, replayed = await cache.once(claim, timeout_ms, self._content)
        headers = idempotency.REPLAYED if replayed else self._rate_limit_headers
        return JsonBytes(content, headers)

    async def _content(self) -> bytes:
        with self._session() as session:
            result = await answering.call(session, self._made)
        return orjson.dumps(self._object(result))

    def _session(self) -> AbstractContextManager[InferenceSession]:
        keeps = self._body.store or self._body.conversation_id
        return _storing(self._open(), self._store) if keeps else self._open()

    def _end_time(self) -> int:
        """Returns the time of its end, the same for its events and its row."""
        if self._ended_at is None:
            self._ended_at = now()
        return self._ended_at

    def _object(self, result: CallResult) -> dict[str, Any]:
        shown = {**self._body.shown, "model": self._made.prepared.shown_model(result.plan)}
        id, created = self._made.id(f"{PREFIX}_"), self._made.created
        return response_object(id, created, shown, self._gained(result))

    def _gained(self, result: CallResult) -> Mapping[str, Any]:
        prepared = self._made.prepared
        return output_of(
            completion_of(result.output, tools=False),
            self._made.id(""),
            tools=prepared.tools,
            ended_at=self._end_time(),
        )

    async def _store(self, end: CallResult | MillraceError) -> None:
        if isinstance(end, MillraceError):
            gained: Mapping[str, Any] = failed(end.code, end.detail)
        else:
            gained = self._gained(end)
        id = stored.parse_id(self._made.id(f"{PREFIX}_"))
        assert id is not None
        tenant, created_at = self._caller.tenant, self._made.created
        new = stored.new_response(id, tenant, self._body, gained, created_at)
        write = partial(self._write, new, gained)
        async with self._context.turns.place(tenant, bounded=False):
            await run_in_threadpool(stored.save, self._context, tenant, write)

    def _write(self, new: NewResponse, gained: Mapping[str, Any], tx: Tx) -> None:
        body, context = self._body, self._context
        if body.store:
            store.store(tx, new, context.settings.keep_responses_days)
        if body.conversation_id:
            conversations.bring(context, tx, new.tenant, body.conversation_id, body.items, gained)
