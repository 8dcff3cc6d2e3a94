"""Lag of the event loop: what blocks it delays every call, as do the requests that wait for their
turn."""

import asyncio
from collections.abc import Callable

from jobs import clock
from jobs.telemetry.metrics import metrics

_NAP_S = 0.2
_NAPS = 5


async def watch(wait_s: Callable[[], float]) -> None:
    """Sets the metric to the worst lag of each second. wait_s: longest wait of a request that isn't
    begun: however many there are, a turn of the loop takes little time."""
    while True:
        worst_s = 0.0
        for _ in range(_NAPS):
            since_s = clock.monotonic()
            await asyncio.sleep(_NAP_S)
            worst_s = max(worst_s, clock.monotonic() - since_s - _NAP_S, wait_s())
        metrics.LOOP_LAG_S.set(worst_s)
