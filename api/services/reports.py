"""Reports of processes: writes this one's every few seconds, and reads those of all."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from api import background
from api.gateway.redis_pipeline import Pipeline
from jobs import clock
from jobs.store import db
from jobs.telemetry.metrics.metrics import REGISTRY
from jobs.telemetry.reports.history import KEY as HISTORY
from jobs.telemetry.reports.history import Point, parse_points
from jobs.telemetry.reports.reporter import FIRST_S
from jobs.telemetry.reports.reports import KEY, Report, ReportSet, parse_fresh
from jobs.telemetry.reports.window import WINDOW_S, Window

_log = logging.getLogger(__name__)
_TTL_S = 1.0  #: Requests within this time share one reading.
_REDIS_WAIT_S = 1.0  #: A reading waits this long for Redis.
_EMPTY = ReportSet(())


class Reports:
    """Reads all processes' reports; writes this one's where `on`.

    `pipe` is not that of calls, which shall not wait for large reports; it is closed at the end.
    `name` is of this process; `about`: see Report.
    """

    def __init__(
        self,
        pipe: Pipeline,
        name: str,
        about: Mapping[str, Any],
        window_s: float = WINDOW_S,
        *,
        on: bool,
    ) -> None:
        self._on = on
        self._window_s = window_s
        self._pipe, self._name, self._about = pipe, name, about
        self._reading, self._until_s = _EMPTY, 0.0
        self._unanswered_since_s: float | None = None  # monotonic; None: Redis answers
        self._known: dict[bytes, Report] = {}
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to write this process's reports."""
        if self._on:
            self._task = background.keep("reports", self._write)

    async def stop(self) -> None:
        """Removes this process's report, and closes the pipeline."""
        if self._task:
            self._task.cancel()
            with suppress(RedisError, TimeoutError):
                async with asyncio.timeout(_REDIS_WAIT_S):
                    await self._pipe.ask("HDEL", KEY, self._name)
        await self._pipe.close()

    async def read(self) -> ReportSet:
        """Returns the current reports; none without Redis."""
        async with self._lock:
            if clock.monotonic() > self._until_s:
                self._reading = await self._read()
                self._until_s = clock.monotonic() + _TTL_S
            return self._reading

    @property
    def unanswered_s(self) -> float:
        """Seconds that Redis has owed a reply; 0 if it answered."""
        if self._unanswered_since_s is None:
            return 0.0
        return max(_REDIS_WAIT_S, clock.monotonic() - self._unanswered_since_s)

    async def history(self) -> list[Point]:
        """Returns the last half hour. Raises RedisError, TimeoutError."""
        async with asyncio.timeout(_REDIS_WAIT_S):
            packed = await self._pipe.ask("LRANGE", HISTORY, 0, -1)
        return parse_points(packed)

    async def _read(self) -> ReportSet:
        queried_s = clock.monotonic()
        try:
            async with asyncio.timeout(_REDIS_WAIT_S):
                now, packed = await asyncio.gather(
                    self._pipe.ask("TIME"), self._pipe.ask("HVALS", KEY)
                )
        except (RedisError, TimeoutError):
            self._unanswered_since_s = self._unanswered_since_s or queried_s
            return _EMPTY
        self._unanswered_since_s = None
        return ReportSet(await asyncio.to_thread(self._readable, packed, _unix(now)))

    def _readable(self, packed: Collection[bytes], now: float) -> list[Report]:
        """Unpacks reports; most are those of a second ago."""
        reports = parse_fresh(packed, now, self._unpack)
        self._known = {raw: self._known[raw] for raw in packed if raw in self._known}
        return reports

    def _unpack(self, packed: bytes) -> Report:
        if packed not in self._known:
            self._known[packed] = Report.unpack(packed)
        return self._known[packed]

    async def _write(self) -> None:
        """Writes in a loop, on a thread: thousands of samples would block the event loop."""
        window, pause_s = Window(REGISTRY, self._window_s), FIRST_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = window.every_s
            db.record_connections()
            stretch = await asyncio.to_thread(window.advance)
            try:
                now = _unix(await self._pipe.ask("TIME"))
                report = Report(self._name, "api", now, stretch, self._about)
                packed = await asyncio.to_thread(report.pack)
                await self._pipe.ask("HSET", KEY, self._name, packed)
                self._unanswered_since_s = None
            except RedisError as error:
                _log.debug("no report: %s", error)


def _unix(time: Any) -> float:
    seconds, micros = time
    return int(seconds) + int(micros) / 1e6
