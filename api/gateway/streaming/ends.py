"""Ends of calls; streams of which messages were lost on their way go on from their logs.

Redis hands a message out once: a connection that is cut takes those along that are on it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from redis.exceptions import RedisError

from api import background
from api.gateway.requests import WaitingCall, end
from api.gateway.streaming.inbox import DeltaInbox
from api.gateway.streaming.known_calls import KnownCalls
from api.http.retry_after import retry_delay_s
from jobs.calls.messages import Delta, UnpackedReply
from jobs.errors import MillraceError, StreamBroken, Unavailable


class CallEnds:
    """Ends the waits for calls, with replies and errors."""

    def __init__(self, known_calls: KnownCalls) -> None:
        self._known_calls = known_calls
        self._reading = set[asyncio.Task[None]]()

    async def stop(self) -> None:
        """Reads no more logs."""
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    def give(self, waiting: WaitingCall, reply: UnpackedReply) -> None:
        """Ends a call with its reply, once the log that it is in is read."""
        inbox = waiting.inbox
        if inbox and inbox.delay(partial(self.give, waiting, reply)):
            return
        if missing := waiting.give(reply):
            self._mend(waiting, missing)

    def fail(self, waiting: WaitingCall, error: MillraceError) -> None:
        """Ends a call whose inbox says that it can't go on."""
        if isinstance(error, StreamBroken):
            self._mend(waiting, error)
        else:
            end(waiting.result, error)

    def lose(self, waiting: WaitingCall) -> None:
        """Ends a call that Redis doesn't know any more."""
        lost = "the call was lost with Redis; send it again"
        self._mend(waiting, Unavailable(lost, retry_after_s=retry_delay_s()))

    def restore(
        self, waiting: WaitingCall, deltas: Sequence[Delta], reply: UnpackedReply | None
    ) -> None:
        """Adds what the log of a stream has. reply: in it."""
        assert waiting.inbox
        waiting.inbox.restore(deltas)
        if reply:
            self.give(waiting, reply)

    def _mend(self, waiting: WaitingCall, error: MillraceError) -> None:
        """Ends a call with an error, unless it streams and its log has more."""
        inbox = waiting.inbox
        if not inbox or not waiting.call.stream:
            end(waiting.result, error)
        elif not inbox.is_held and not waiting.result.done():
            inbox.stop()
            inbox.hold()
            task = background.spawn("log of a stream", self._read_log(waiting, inbox, error))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def _read_log(
        self, waiting: WaitingCall, inbox: DeltaInbox, error: MillraceError
    ) -> None:
        before = inbox.received
        try:
            deltas, reply = await self._known_calls.log(waiting.status.model, waiting.call.id)
        except Exception as failure:
            end(waiting.result, error)
            if not isinstance(failure, RedisError):
                raise
            return
        inbox.start(partial(self.fail, waiting))
        self.restore(waiting, deltas, reply)
        if inbox.received == before:
            end(waiting.result, error)  # unless the reply was all that was missing
        if waiting.result.done():
            inbox.stop()
