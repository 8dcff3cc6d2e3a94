"""What the processes told of themselves, for pages: their last minute, and the half hour before."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from redis import RedisError

from api.context import Shared
from jobs import clock
from jobs.telemetry import history
from jobs.telemetry.history import Point
from jobs.telemetry.reports import Reading

_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Told:
    """redis_s: how long Redis took to answer; None: it didn't."""

    reading: Reading
    history: list[Point]
    redis_s: float | None

    def lately(self, figure: str) -> list[float | None]:
        """One figure of the last half hour, the oldest first."""
        return [getattr(point, figure) for point in self.history]


async def _told(shared: Shared) -> Told:
    reading = await shared.reports.read()
    since_s = clock.monotonic()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            packed = await shared.calls.pipe.ask("LRANGE", history.KEY, 0, -1)
    except (RedisError, TimeoutError):
        return Told(reading, [], None)
    return Told(reading, history.points(packed), clock.monotonic() - since_s)


Telling = Annotated[Told, Depends(_told)]
