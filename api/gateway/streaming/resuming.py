"""Requests for the rest of a stream, and streams that outlive their connection."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request

from api.gateway.fallbacks import FallbackPlan
from api.gateway.gateway import CallGateway
from api.gateway.inference import CallResult, InferenceSession
from api.gateway.streaming.call_stream import MakeCall
from api.gateway.streaming.event_ids import HEADER, PATTERN, Position
from jobs import clock, ids
from jobs.errors import Malformed
from jobs.models.registry import Registry

RESUME_HEADER = "X-Millrace-Resume-Within"
LONGEST_S = 300

LAST_EVENT_ID: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "description": "the `id` of the last event that was received: the stream of its call goes on "
    "after it",
    "schema": {"type": "string", "pattern": PATTERN},
}
RESUME_WITHIN: dict[str, Any] = {
    "name": RESUME_HEADER,
    "in": "header",
    "description": "seconds for which the call of a stream runs on once its connection is lost, so "
    "that a client can come back with Last-Event-ID; without it the call is cancelled at once, and "
    "only events of the native API have an `id`",
    "schema": {"type": "integer", "minimum": 1, "maximum": LONGEST_S},
}


def stream_doc(doc: dict[str, Any]) -> dict[str, Any]:
    """Returns OpenAPI's description of a request that may ask for a stream, or for its rest."""
    return {**doc, "parameters": [*doc.get("parameters", ()), LAST_EVENT_ID, RESUME_WITHIN]}


@dataclass(frozen=True, slots=True)
class StreamCall:
    """Call of a stream, to make or to take over."""

    make: MakeCall
    after: Position  #: the last event that the client has had
    resume_within_s: int  #: for which the call may outlive this connection


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """Headers of a request that asks for a stream, or for the rest of one."""

    after: Position | None  #: the last event that the client has had; None: the stream is new
    resume_within_s: int | None  #: None: not given

    @classmethod
    def read(cls, request: Request) -> "StreamRequest":
        """Reads the headers. Raises Malformed."""
        last, within = (request.headers.get(name) for name in (HEADER, RESUME_HEADER))
        return cls(
            Position.parse(last) if last is not None else None,
            _seconds(within) if within is not None else None,
        )

    @property
    def comes_back(self) -> bool:
        """True where the client reads ids of events. Others' clients don't: some drop the event
        that an id stands in, such as that of the usage."""
        return self.after is not None or self.resume_within_s is not None

    @property
    def call_id(self) -> str:
        """Id of the call that it is about; a new one each time for a new stream."""
        return self.after.call_id if self.after else ids.new_shown("call")

    def begin(self, call_id: str, value: Any, plans: Iterable[FallbackPlan]) -> StreamCall:
        """Returns the call of a new stream."""

        async def make(session: InferenceSession) -> CallResult:
            return await session.call(value, iter(plans))

        return StreamCall(make, Position(call_id), self.resume_within_s or 0)

    async def resume(
        self,
        gateway: CallGateway,
        models: Registry,
        tenant: str,
        after: Position,
        plans: Iterable[FallbackPlan] = (),
    ) -> StreamCall:
        """Returns a call of this tenant that streams. Raises NotFound. plans: those by which it may
        have been admitted."""
        found = await gateway.known_calls.find_stream(models, after.call_id, tenant)
        made = FallbackPlan(found.model, {}, 0, {})
        key = found.model.key
        plan = next((one for one in plans if one.model.key == key), made)
        within_s = self.resume_within_s
        within_s = found.resume_within_s if within_s is None else within_s

        async def make(session: InferenceSession) -> CallResult:
            return await replace(session, since_s=made_s(after.call_id)).resume(plan)

        return StreamCall(make, after, within_s)


def made_s(call_id: str) -> float:
    """Returns when a call was made, by its id, on the process's clock."""
    return clock.monotonic() - max(0.0, clock.now().timestamp() - ids.made_at("call", call_id))


def _seconds(text: str) -> int:
    seconds = int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
    if not 1 <= seconds <= LONGEST_S:
        raise Malformed(f"{RESUME_HEADER} must be a number of seconds from 1 to {LONGEST_S}")
    return seconds


@contextmanager
def lingering(left: "asyncio.Future[Any]", seconds: float) -> "Iterator[asyncio.Future[Any]]":
    """Yields a future that is done so many seconds after another one."""
    if not seconds:
        yield left
        return
    loop = asyncio.get_running_loop()
    later: asyncio.Future[Any] = loop.create_future()
    timers = list[asyncio.TimerHandle]()

    def end() -> None:
        if not later.done():
            later.set_result(None)

    def begin(_: Any) -> None:
        timers.append(loop.call_later(seconds, end))

    left.add_done_callback(begin)
    try:
        yield later
    finally:
        left.remove_done_callback(begin)
        for timer in timers:
            timer.cancel()
