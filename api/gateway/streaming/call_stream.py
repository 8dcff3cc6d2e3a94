"""One call whose output is read while it grows."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from api.gateway.inference import CallResult, InferenceSession
from api.gateway.streaming.inbox import SLOW_READER_S, DeltaInbox, StreamDeadlines
from jobs.calls.messages import Delta
from jobs.errors import SlowReader

MakeCall = Callable[[InferenceSession], Coroutine[Any, Any, CallResult]]
"""Makes a call, or takes one over, in a session."""


class CallStream:
    """Deltas of a call, then its result. `close` withdraws a call that has not ended."""

    def __init__(
        self,
        session: InferenceSession,
        call: MakeCall,
        deadlines: StreamDeadlines | None,
        slow_reader_s: float = SLOW_READER_S,
    ) -> None:
        self._inbox = DeltaInbox(deadlines, slow_reader_s)
        self._outlives_reader = session.resume_within_s > 0
        self._call = asyncio.create_task(call(replace(session, inbox=self._inbox)))
        self._call.add_done_callback(lambda _: self._inbox.wake())

    async def read(self, timeout_s: float) -> list[Delta] | None:
        """Waits for deltas, and returns them: none where the time is over; None at the end of the
        call."""
        if not self._call.done():
            await self._inbox.wait(timeout_s)
        return self._inbox.take() or (None if self._call.done() else [])

    async def begin(self, timeout_s: float) -> None:
        """Waits for the first delta or the end, at most so long. Raises the error of a call that
        ended without a delta."""
        if not self._call.done():
            await self._inbox.wait(timeout_s)
        if self._call.done() and not self.received:
            self._call.result()

    @property
    def received(self) -> int:
        """Number of deltas so far."""
        return self._inbox.received

    @property
    def succeeded(self) -> bool:
        """True once the call has ended with a result."""
        return self._call.done() and not self._call.cancelled() and not self._call.exception()

    def result(self) -> CallResult:
        """Returns the result of a call that has ended, or raises its error."""
        return self._call.result()

    def when_unread(self, cut: Callable[[], None]) -> None:
        """Calls `cut` where the client doesn't read. That ends the call, too, unless it is to
        outlive its connection."""
        if self._outlives_reader:
            self._inbox.outlive_reader(cut)

        def check(call: "asyncio.Task[CallResult]") -> None:
            if not call.cancelled() and isinstance(call.exception(), SlowReader):
                cut()

        self._call.add_done_callback(check)

    async def close(self) -> None:
        """Withdraws the call unless it has ended."""
        self._call.cancel()
        await asyncio.gather(self._call, return_exceptions=True)
