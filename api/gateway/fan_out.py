"""The inputs of one request as calls of their own, each in its lane: they share launches with each
other and with everybody's, and are answered together or not at all."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from api.gateway.fallbacks import FallbackPlan
from api.gateway.inference import CallResult, InferenceSession, for_now
from jobs import clock
from jobs.errors import MillraceError
from jobs.identity import Limit
from jobs.models.model import Model

MOST_AT_ONCE = 256
"""Calls of one request that wait or run: a full launch or several, a part of the queue."""

_AT_A_TIME = 16  # inputs: to size them, or to send them, takes the loop a millisecond or so


async def fan_out(
    asking: InferenceSession, model: Model, values: Sequence[Any], params: Mapping[str, Any]
) -> list[CallResult]:
    """Their answers, in order: as they were asked, all by this model. Raises why the first was not
    let in, or why one failed; the others are taken back then."""
    calls = _Calls(asking, values, await _sized(model, values, params))
    try:
        await calls.run()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return [calls.answers[n] for n in range(len(values))]


async def _sized(
    model: Model, values: Sequence[Any], params: Mapping[str, Any]
) -> list[FallbackPlan]:
    found = []
    for n, value in enumerate(values):
        found.append(FallbackPlan(model, params, model.size(value, params), {}))
        if n % _AT_A_TIME == _AT_A_TIME - 1:
            await asyncio.sleep(0)
    return found


class _Calls:
    """As many at once as are let in: one that is not, for now, comes again when another one of
    them has ended. The first stands for all: it is charged with the whole request, and is refused
    as a single call would be."""

    def __init__(
        self, asking: InferenceSession, values: Sequence[Any], ways: Sequence[FallbackPlan]
    ) -> None:
        self.answers: dict[int, CallResult] = {}
        self._values, self._ways = values, ways
        more = sum(way.size for way in ways[1:])
        self._first = replace(asking, more_units=more, let_in=self._widen)
        flights = tuple(map(_of_flights, asking.caller.limits))
        caller = replace(asking.caller, limits=flights)
        self._other = replace(asking, caller=caller, rate_limit_headers={}, patient=True)
        self._left = deque(range(len(values)))
        self._open = 0
        self._window = 1 if asking.caller.limits else MOST_AT_ONCE
        self._changed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while self._left or self._open:
                self._changed.clear()
                while self._left and self._open < self._window:
                    self._open += 1
                    group.create_task(self._ask(self._left.popleft()))
                    if self._open % _AT_A_TIME == 0:
                        await asyncio.sleep(0)
                await self._changed.wait()

    def _widen(self) -> None:
        self._window = MOST_AT_ONCE
        self._changed.set()

    async def _ask(self, n: int) -> None:
        asking = self._other if n else self._first
        waited_ms = (clock.monotonic() - asking.since_s) * 1000
        asking = replace(asking, waited_ms=waited_ms if n else 0.0)
        try:
            self.answers[n] = await asking.call(self._values[n], iter((self._ways[n],)))
            self._window = min(self._window + 1, MOST_AT_ONCE)
        except MillraceError as error:
            if n == 0 or not for_now(error):
                raise
            self._left.appendleft(n)
            self._window = max(1, self._open - 1)
            if self._open == 1:  # none of ours will make room
                await self._rest(error.retry_after_s or 0.0)
        finally:
            self._open -= 1
            self._changed.set()

    async def _rest(self, seconds: float) -> None:
        """At most until the deadline, by which the next try ends."""
        asking = self._other
        left_s = asking.since_s + asking.timeout_ms / 1000 - clock.monotonic()
        await asyncio.sleep(max(0.0, min(seconds, left_s)))


def _of_flights(limit: Limit) -> Limit:
    return replace(limit, requests_per_s=None, tokens_per_s=None)
