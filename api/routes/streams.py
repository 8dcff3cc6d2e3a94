"""Streams of calls that run, or ran a moment ago: read again from any event, and ended."""

from typing import Any

from fastapi import APIRouter, Request, Response

from api.context import ContextDep
from api.dependencies import Inferrer
from api.gateway.streaming.call_events import CallEvents
from api.gateway.streaming.event_ids import Position
from api.gateway.streaming.event_stream import MEDIA_TYPE, answer_by_events
from api.gateway.streaming.inbox import StreamDeadlines
from api.gateway.streaming.resuming import StreamRequest, made_s, stream_doc
from api.http.responses import json_response
from api.routes.why import CallId
from api.schemas.calls import EVENTS, MAX_CALL_TIMEOUT_MS, CancelledCall
from jobs import clock
from jobs.errors import NotFound

router = APIRouter(tags=["calls"])
_STREAM = {"schema": {"type": "string"}, "example": EVENTS}
_DOC: dict[int | str, dict[str, Any]] = {
    200: {"content": {MEDIA_TYPE: _STREAM}},
    204: {"description": "the client has had all of it"},
}


@router.get(
    "/calls/{call_id}/stream",
    response_class=Response,
    responses=_DOC,
    openapi_extra=stream_doc({}),
)
async def stream_call(
    request: Request, context: ContextDep, caller: Inferrer, call_id: CallId
) -> Response:
    """Streams a call that was made with `"stream": true`, at any api, in the events of POST /infer:
    after the event that Last-Event-ID names, else from its start. A minute after the call has ended
    there is nothing more. A connection that reads the same stream is ended."""
    asked = StreamRequest.read(request)
    after = asked.after or Position(call_id)
    if after.call_id != call_id:
        raise NotFound(f"Last-Event-ID is of another stream: {after.call_id}")
    call = await asked.resume(context.gateway, context.models, caller.tenant, after)
    since_s, opened_s = made_s(call_id), clock.monotonic()
    session = context.inference_session(
        request, caller, "interactive", MAX_CALL_TIMEOUT_MS, opened_s, {}
    )
    return await answer_by_events(session, call, StreamDeadlines(), CallEvents(since_s))


@router.post("/calls/{call_id}/cancel", response_model=CancelledCall)
async def cancel_call(context: ContextDep, caller: Inferrer, call_id: CallId) -> Response:
    """Ends a call that waits or runs, at any api: a stream gets the error `cancelled`, and what was
    generated until then is billed."""
    await context.gateway.known_calls.cancel(context.models, call_id, caller.tenant)
    return json_response({"id": call_id, "outcome": "cancelled"})
