"""Responses of server-sent events: the deltas of a call in the words of one API."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Protocol

import orjson
from fastapi import Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from api.gateway.inference import CallResult, InferenceSession
from api.gateway.streaming.call_stream import CallStream
from api.gateway.streaming.event_ids import EventIds, Position
from api.gateway.streaming.inbox import StreamDeadlines
from api.gateway.streaming.resuming import StreamCall, lingering
from api.http.connections import connection
from api.http.errors import to_error
from api.http.request_id import request_id
from jobs.blobs.lines import one_line
from jobs.calls.messages import Delta
from jobs.errors import MillraceError

MEDIA_TYPE = "text/event-stream"
# Without a blank line: behind an id, OpenAI's and Anthropic's clients take one for an event.
KEEP_ALIVE = b": keep-alive\n"
KEEP_ALIVE_S = 10.0  # of silence
STATUS_WITHIN_S = 2.0  # a call that fails within this time is answered with its own status


class EventWriter(Protocol):
    """Writes the events of one API; each method returns whole events, or nothing."""

    def begin(self) -> bytes:
        """Returns the events before the first delta."""
        ...

    def write(self, delta: Delta) -> bytes:
        """Returns the events of one delta."""
        ...

    def end(self, result: CallResult) -> bytes:
        """Returns the last events of a call that succeeded."""
        ...

    def fail(self, error: MillraceError, request_id: str) -> bytes:
        """Returns the last events of a call that failed."""
        ...


def event(data: Any, name: str = "") -> bytes:
    """Returns one event whose data is JSON."""
    head = b"event: %b\n" % name.encode() if name else b""
    return b"%bdata: %b\n\n" % (head, one_line(orjson.dumps(data)))


class EventStream(Response):
    """Response that follows a call to its end; the call is withdrawn where the client leaves."""

    def __init__(
        self,
        stream: CallStream,
        writer: EventWriter,
        event_ids: EventIds,
        headers: dict[str, str],
        session: ExitStack,
    ) -> None:
        """session: closed at the end."""
        no_buffering = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
        super().__init__(headers={**headers, **no_buffering}, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._stream, self._writer, self._session = stream, writer, session
        self._ids = event_ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events."""
        self._stream.when_unread(lambda: connection.break_off(scope))
        try:
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            async for piece in self._pieces(request_id(scope)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            with self._session:
                await self._stream.close()

    async def _pieces(self, id: str) -> AsyncGenerator[bytes, None]:
        stream, writer, ids = self._stream, self._writer, self._ids
        if first := ids.write(0, writer.begin(), whole=False):
            yield first
        while (deltas := await stream.read(KEEP_ALIVE_S)) is not None:
            events = b"".join(ids.write(one.number, writer.write(one)) for one in deltas)
            if piece := events if deltas else KEEP_ALIVE:
                yield piece
        try:
            last = ids.write(stream.received, writer.end(stream.result()))
        except (ClientDisconnect, asyncio.CancelledError):
            return
        except Exception as error:
            last = ids.repeat(writer.fail(to_error(error, id), id))
        yield last


async def answer_by_events(
    opened: AbstractContextManager[InferenceSession],
    call: StreamCall,
    deadlines: StreamDeadlines | None,
    writer: EventWriter,
    *,
    has_ids: bool = True,
) -> Response:
    """Makes a call, and returns the response that streams it; 204 where its client has had all.
    Raises the error of a call that fails at once, so that it has a status of its own.

    has_ids: its events have ids, by which the client can come back."""
    after, within_s = call.after, call.resume_within_s
    with ExitStack() as stack:
        session = stack.enter_context(opened)
        streams, tenant = session.gateway.open_streams, session.caller.tenant
        stack.enter_context(streams.opened(tenant, resumed=after != Position(after.call_id)))
        if session.client_disconnected.done():  # it may read the stream elsewhere by now
            raise ClientDisconnect
        left = stack.enter_context(lingering(session.client_disconnected, within_s))
        session = replace(
            session,
            call_id=after.call_id,
            client_disconnected=left,
            resume_within_s=within_s,
        )
        stream = CallStream(session, call.make, deadlines)
        try:
            await stream.begin(STATUS_WITHIN_S)
        except BaseException:
            await stream.close()
            raise
        if stream.succeeded and after == Position(after.call_id, stream.received):
            return Response(status_code=HTTPStatus.NO_CONTENT)
        headers = session.response_headers
        event_ids = EventIds(after, shown=has_ids)
        return EventStream(stream, writer, event_ids, headers, stack.pop_all())
