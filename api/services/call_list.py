"""List of calls that ended within the last hour, newest first, from their records in Redis.

Nothing is written for it: records lie in a hash a minute, which is read whole.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from api.gateway.redis_pipeline import Pipeline
from jobs import clock, ids
from jobs.calls.records import (
    LEFT_OUT,
    MINUTE_S,
    RETENTION_S,
    CallFilter,
    CallRecord,
    minute_key,
)

_MOST_READ = 5000  # records that are read for one page: about 30 ms of a thread


@dataclass(frozen=True, slots=True)
class CallPage:
    """Some calls."""

    calls: list[CallRecord]  #: newest first, by when they were made
    next: str | None  #: id after which the next page begins; None: there is none
    left_out: int  #: other calls of the minutes that were read, of which no record is kept


class CallList:
    """Reads records through `pipe`, which isn't that of calls."""

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe

    async def page(self, want: CallFilter, after: str | None, limit: int) -> CallPage:
        """Returns calls that were made before the call `after`. A page may be short, or empty,
        although there is a next one: few of many records matched. Raises RedisError."""
        found: list[CallRecord] = []
        left_out = read = 0
        minutes = _minutes(want, after)
        for n, minute in enumerate(minutes):
            packed = await self._minute(minute)
            left_out += int(packed.pop(LEFT_OUT, 0))
            read += len(packed)
            found += await asyncio.to_thread(_matching, packed.values(), want, after)
            if len(found) > limit:
                return CallPage(found[:limit], found[limit - 1].id, left_out)
            if read >= _MOST_READ and n + 1 < len(minutes):
                beginning = datetime.fromtimestamp(minute * MINUTE_S, UTC)
                return CallPage(found, ids.show("call", ids.earliest(beginning)), left_out)
        return CallPage(found, None, left_out)

    async def _minute(self, minute: int) -> dict[bytes, bytes]:
        flat = iter(await self._pipe.ask("HGETALL", minute_key(minute)))
        return dict(zip(flat, flat, strict=True))


def _minutes(want: CallFilter, after: str | None) -> range:
    """Returns the minutes to read, newest first."""
    now_s = clock.now().timestamp()
    newest_s = now_s + MINUTE_S  # of an api whose clock is ahead
    oldest_s = now_s - RETENTION_S - MINUTE_S
    if after:
        before = ids.parse("call", after)
        # The first id of a minute, at which a page ended, is after none of that minute.
        newest_s = min(newest_s, ((before.int - 1) >> 80) / 1000) if before else newest_s
    if want.until:
        newest_s = min(newest_s, want.until.timestamp())
    if want.since:
        oldest_s = max(oldest_s, want.since.timestamp())
    return range(int(newest_s // MINUTE_S), int(oldest_s // MINUTE_S) - 1, -1)


def _matching(packed: Iterable[bytes], want: CallFilter, after: str | None) -> list[CallRecord]:
    """Returns the records that match, newest first, without those of another release."""
    found = []
    for one in packed:
        try:
            record = CallRecord.unpack(one)
        except (ValueError, TypeError):
            continue
        if (after is None or record.id < after) and want.matches(record):
            found.append(record)
    return sorted(found, key=lambda record: record.id, reverse=True)
