"""How late the event loop is: what runs there for long keeps every call waiting."""

import asyncio

from jobs import clock
from jobs.telemetry.metrics import metrics

_NAP_S = 0.1
_NAPS = 10


async def watch() -> None:
    """Tells the worst of each second."""
    while True:
        worst_s = 0.0
        for _ in range(_NAPS):
            since_s = clock.monotonic()
            await asyncio.sleep(_NAP_S)
            worst_s = max(worst_s, clock.monotonic() - since_s - _NAP_S)
        metrics.LOOP_LAG_S.set(worst_s)
