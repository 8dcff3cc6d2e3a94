"""What the processes told of themselves, for pages: their last minute, and the half hour before."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from redis import RedisError

from api.context import ContextDep
from jobs import clock
from jobs.telemetry.reports.history import Point
from jobs.telemetry.reports.reports import Reading


@dataclass(frozen=True, slots=True)
class TelemetrySnapshot:
    """redis_s: how long Redis took to answer; None: it didn't."""

    reading: Reading
    history: list[Point]
    redis_s: float | None

    def latest(self, figure: str) -> list[float | None]:
        """One figure of the last half hour, the oldest first."""
        return [getattr(point, figure) for point in self.history]


async def _told(shared: ContextDep) -> TelemetrySnapshot:
    reading = await shared.reports.read()
    since_s = clock.monotonic()
    try:
        points = await shared.reports.history()
    except (RedisError, TimeoutError):
        return TelemetrySnapshot(reading, [], None)
    return TelemetrySnapshot(reading, points, clock.monotonic() - since_s)


StatusReporter = Annotated[TelemetrySnapshot, Depends(_told)]
