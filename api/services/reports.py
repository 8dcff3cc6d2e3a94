"""The reports of processes: this one's own, written every few seconds, and everybody's, read."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from api.gateway.redis_pipeline import RedisPipeline
from jobs import clock
from jobs.store import db
from jobs.telemetry.metrics.metrics import REGISTRY
from jobs.telemetry.reports.history import KEY as HISTORY
from jobs.telemetry.reports.history import Point, parse_points
from jobs.telemetry.reports.reporter import FIRST_S
from jobs.telemetry.reports.reports import KEY, Report, ReportSet, parse_fresh
from jobs.telemetry.reports.window import WINDOW_S, Window

_log = logging.getLogger(__name__)
_KEPT_S = 1.0
"""A reading serves everybody for so long."""
_PATIENCE_S = 1.0
"""Longer than that nobody waits for Redis to know how things are."""
_NOTHING = ReportSet(())


class Reports:
    """pipe: not that of calls: what all processes report is much at a time, and no call is to wait
    for it. It is closed in the end. name: of this process; about: see Report."""

    def __init__(
        self, pipe: RedisPipeline, name: str, about: Mapping[str, Any], window_s: float = WINDOW_S
    ) -> None:
        self._window_s = window_s
        self._pipe, self._name, self._about = pipe, name, about
        self._reading, self._until_s = _NOTHING, 0.0
        self._owed_s: float | None = None  # since when Redis owes an answer
        self._known: dict[bytes, Report] = {}
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Writes this process's own from now on."""
        self._task = asyncio.create_task(self._write())

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            with suppress(RedisError, TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await self._pipe.ask("HDEL", KEY, self._name)
        await self._pipe.close()

    async def read(self) -> ReportSet:
        """Of about now; without Redis nobody is heard of: an empty one."""
        async with self._turn:
            if clock.monotonic() > self._until_s:
                self._reading = await self._read()
                self._until_s = clock.monotonic() + _KEPT_S
            return self._reading

    @property
    def unanswered_s(self) -> float:
        """For how long Redis has owed an answer; 0: it gave one."""
        if self._owed_s is None:
            return 0.0
        return max(_PATIENCE_S, clock.monotonic() - self._owed_s)

    async def history(self) -> list[Point]:
        """The half hour before. Raises RedisError, and TimeoutError where it takes too long."""
        async with asyncio.timeout(_PATIENCE_S):
            packed = await self._pipe.ask("LRANGE", HISTORY, 0, -1)
        return parse_points(packed)

    async def _read(self) -> ReportSet:
        asked_s = clock.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                now, packed = await asyncio.gather(
                    self._pipe.ask("TIME"), self._pipe.ask("HVALS", KEY)
                )
        except (RedisError, TimeoutError):
            self._owed_s = self._owed_s or asked_s
            return _NOTHING
        self._owed_s = None
        return ReportSet(await asyncio.to_thread(self._readable, packed, _unix(now)))

    def _readable(self, packed: Collection[bytes], now: float) -> list[Report]:
        """Most of them are those of a second ago."""
        found = parse_fresh(packed, now, self._unpack)
        self._known = {raw: self._known[raw] for raw in packed if raw in self._known}
        return found

    def _unpack(self, packed: bytes) -> Report:
        if packed not in self._known:
            self._known[packed] = Report.unpack(packed)
        return self._known[packed]

    async def _write(self) -> None:
        """On a thread: to look at thousands of samples takes the loop too long."""
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
                self._owed_s = None
            except RedisError as error:
                _log.debug("no report: %s", error)


def _unix(time: Any) -> float:
    seconds, micros = time
    return int(seconds) + int(micros) / 1e6
