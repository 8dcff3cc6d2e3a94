"""Lag of the event loop: what blocks it delays every call."""

import asyncio

from jobs import clock
from jobs.telemetry.metrics import metrics

_NAP_S = 0.2
_NAPS = 5


async def watch() -> None:
    """Sets the metric to the worst lag of each second."""
    while True:
        worst_s = 0.0
        for _ in range(_NAPS):
            since_s = clock.monotonic()
            await asyncio.sleep(_NAP_S)
            worst_s = max(worst_s, clock.monotonic() - since_s - _NAP_S)
        metrics.LOOP_LAG_S.set(worst_s)
