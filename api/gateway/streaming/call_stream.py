"""One call whose output is read while it grows."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from api.gateway.fallbacks import FallbackPlan
from api.gateway.inference import CallResult, InferenceSession
from api.gateway.streaming.inbox import SLOW_READER_S, DeltaInbox, StreamDeadlines
from jobs.calls.messages import Delta
from jobs.errors import SlowReader


class CallStream:
    """Deltas of a call, then its result. `close` withdraws a call that has not ended."""

    def __init__(
        self,
        session: InferenceSession,
        value: Any,
        plans: Iterator[FallbackPlan],
        deadlines: StreamDeadlines | None,
        slow_reader_s: float = SLOW_READER_S,
    ) -> None:
        self._inbox = DeltaInbox(deadlines, slow_reader_s)
        session = replace(session, inbox=self._inbox)
        self._call = asyncio.create_task(session.call(value, plans))
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
        if self._call.done():
            self._call.result()

    def result(self) -> CallResult:
        """Returns the result of a call that has ended, or raises its error."""
        return self._call.result()

    def when_unread(self, cut: Callable[[], None]) -> None:
        """Calls `cut` where the call ends because its client doesn't read."""

        def check(call: "asyncio.Task[CallResult]") -> None:
            if not call.cancelled() and isinstance(call.exception(), SlowReader):
                cut()

        self._call.add_done_callback(check)

    async def close(self) -> None:
        """Withdraws the call unless it has ended."""
        self._call.cancel()
        await asyncio.gather(self._call, return_exceptions=True)
