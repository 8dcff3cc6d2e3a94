"""Stream of a rollout in Redis: records of launches, appended by workers, read by keepers.

It is capped. If Redis loses it, or a keeper starts again, what is left is read from its beginning:
evidence may be lost, and none counts twice.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from jobs.calls.messages import Call
from jobs.rollouts.cohorts import parse
from jobs.rollouts.records import STREAM_RECORDS, Lane, LaunchRecord, pack, unpack

_AT_ONCE = 5000  # launches
_KEPT_S = 24 * 3600  # after the last record
_FIELD = b"r"


def stream_key(rollout: str) -> str:
    """Returns the key of a rollout's stream."""
    return f"millrace:rollout:{rollout}"


def append(client: Any, rollout: str, *launches: Sequence[LaunchRecord]) -> None:
    """Appends to the stream of a rollout. launches: records of each, together one entry. Raises
    RedisError."""
    key = stream_key(rollout)
    pipeline = client.pipeline(transaction=False)
    for records in launches:
        pipeline.execute_command(*append_command(rollout, records))
    pipeline.expire(key, _KEPT_S)
    pipeline.execute()


def append_command(rollout: str, records: Sequence[LaunchRecord]) -> Sequence[Any]:
    """Returns the command that appends the records of one launch."""
    capped = "MAXLEN", "~", STREAM_RECORDS
    return "XADD", stream_key(rollout), *capped, "*", _FIELD, pack(records)


def late_command(call: Call, lasted_ms: float) -> Sequence[Any] | None:
    """Returns the command that records a call whose time was over before it was answered: where its
    worker hangs, no launch ends. None for one that is in no lane of a rollout."""
    cohort = parse(call.cohort) if call.cohort else None
    if cohort is None or cohort.lane not in ("canary", "control"):
        return None
    record = LaunchRecord(0.0, cohort.lane, 1, 1, cohort.caller, lasted_ms=lasted_ms)
    return append_command(cohort.rollout, [record])


def append_deaths(client: Any, died: Sequence[Any]) -> None:
    """Appends calls whose worker died, as one launch of a lane for each worker. died: "worker
    cohort" and their number in turn, as recover.lua tells them. Raises RedisError."""
    found = defaultdict[tuple[str, str, Lane], list[tuple[str, int]]](list)
    for name, count in zip(died[::2], died[1::2], strict=True):
        worker, _, label = name.decode().partition(" ")
        cohort = parse(label)
        if cohort and cohort.lane != "missed":
            found[worker, cohort.rollout, cohort.lane].append((cohort.caller, count))
    for (_, rollout, lane), callers in found.items():
        if lane == "stable":
            append(client, rollout, [LaunchRecord(0.0, lane, 0, failed=1)])
            continue
        records = [LaunchRecord(0.0, lane, count, count, caller) for caller, count in callers]
        append(client, rollout, [records[0], *(replace(one, launches=0) for one in records[1:])])


class StreamReader:
    """Reads the stream of one rollout from its beginning on."""

    def __init__(self, client: Any, rollout: str) -> None:
        self._client, self._key, self._last = client, stream_key(rollout), "0-0"

    def read(self) -> list[LaunchRecord]:
        """Returns the records that came since the last time, in order; of at most 5,000 launches.
        Raises RedisError."""
        found = self._client.xrange(self._key, f"({self._last}", "+", count=_AT_ONCE)
        records = list[LaunchRecord]()
        for id, fields in cast(list[tuple[bytes, dict[bytes, bytes]]], found):
            self._last = id.decode()
            records += unpack(fields[_FIELD], int(self._last.partition("-")[0]) / 1000)
        return records
