"""Fan-out of one request with several inputs to as many calls, which are answered together or not
at all."""

import asyncio
from collections import deque
from dataclasses import replace

import orjson

from api.gateway.inference import CallResult, InferenceSession, is_temporary
from api.gateway.prepared import PreparedInputs
from jobs import clock
from jobs.errors import MillraceError
from jobs.identity import Limit

#: Calls of one request that wait or run: one full launch or several, and a part of the queue.
MAX_CONCURRENT_CALLS = 256

_YIELD_EVERY = 16  # inputs; sending them blocks the loop for about a millisecond


async def fan_out(session: InferenceSession, inputs: PreparedInputs) -> list[CallResult]:
    """Returns the results in the order of the inputs, all by one model.

    Raises why the first was not admitted, or why one failed; the others are then withdrawn.
    """
    calls = _Calls(session, inputs)
    try:
        await calls.run()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return [calls.results[n] for n in range(len(inputs.values))]


class _Calls:
    """Keeps as many calls in flight as are admitted: one that is rejected for now is retried when
    another one has ended. The first stands for all: it is charged with the whole request, and is
    rejected as a single call would be."""

    def __init__(self, session: InferenceSession, inputs: PreparedInputs) -> None:
        self.results: dict[int, CallResult] = {}
        self._values, self._plans = inputs.values, inputs.plans
        more = sum(plan.size for plan in inputs.plans[1:])
        self._first = replace(session, more_units=more, on_admitted=self._widen)
        flights = tuple(map(_concurrency_only, session.caller.limits))
        caller = replace(session.caller, limits=flights)
        self._following = replace(
            session, caller=caller, response_headers={}, retries_admission=True
        )
        self._left = deque(range(len(inputs.values)))
        self._open = 0
        self._window = 1 if session.caller.limits else MAX_CONCURRENT_CALLS
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Runs all calls. Raises an exception group."""
        async with asyncio.TaskGroup() as group:
            while self._left or self._open:
                self._changed.clear()
                while self._left and self._open < self._window:
                    self._open += 1
                    group.create_task(self._call(self._left.popleft()))
                    if self._open % _YIELD_EVERY == 0:
                        await asyncio.sleep(0)
                await self._changed.wait()

    def _widen(self) -> None:
        self._window = MAX_CONCURRENT_CALLS
        self._changed.set()

    async def _call(self, n: int) -> None:
        session = self._following if n else self._first
        waited_ms = (clock.monotonic() - session.since_s) * 1000
        session = replace(session, waited_ms=waited_ms if n else 0.0)
        try:
            value = orjson.Fragment(self._values[n])
            self.results[n] = await session.call(value, iter((self._plans[n],)))
            self._window = min(self._window + 1, MAX_CONCURRENT_CALLS)
        except MillraceError as error:
            if n == 0 or not is_temporary(error):
                raise
            self._left.appendleft(n)
            self._window = max(1, self._open - 1)
            if self._open == 1:  # none of ours will make room
                await self._pause(error.retry_after_s or 0.0)
        finally:
            self._open -= 1
            self._changed.set()

    async def _pause(self, seconds: float) -> None:
        """Sleeps, at most until the deadline, with which the next attempt ends."""
        session = self._following
        left_s = session.since_s + session.timeout_ms / 1000 - clock.monotonic()
        await asyncio.sleep(max(0.0, min(seconds, left_s)))


def _concurrency_only(limit: Limit) -> Limit:
    """Drops the rates of a limit; the first call is charged with them."""
    return replace(limit, requests_per_s=None, tokens_per_s=None, tokens_per_min=None)
