"""Records of launches for the rollout that their calls are part of."""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf

from redis import Redis, RedisError

from jobs import clock
from jobs.calls.messages import Reply
from jobs.calls.streams.rollout import append
from jobs.models.model import Model
from jobs.rollouts.cohorts import Cohort, parse
from jobs.rollouts.records import Lane, LaunchRecord
from workers.scheduler.entries import Launch

_log = logging.getLogger(__name__)
_PAUSE_S = 5.0  # after Redis failed: each try holds up the replies of the next launch
_COUNTED_S = 1.0  # between records of the rest of the stable version
_FAILED_S = 0.1  # where a launch of it failed: the canary's failures are compared with these
_EMPTY = {b"null", b'""', b"[]", b"{}"}
_INVALID = "invalid_output"


class RecordStreams:
    """Streams of rollouts, which records are written to. redis: None: they are dropped.

    A record that Redis doesn't take is lost: the rollout knows less, and no call waits.
    """

    def __init__(self, redis: "Redis | None" = None) -> None:
        self._redis, self._paused_until_s = redis, -inf

    def write(self, rollout: str, *launches: Sequence[LaunchRecord]) -> None:
        """Writes the records of launches to the stream of a rollout."""
        if self._redis is None or clock.monotonic() < self._paused_until_s:
            return
        try:
            append(self._redis, rollout, *launches)
        except RedisError as error:
            self._paused_until_s = clock.monotonic() + _PAUSE_S
            _log.warning("a launch of rollout %s isn't recorded: %s", rollout, error)


@dataclass(slots=True)
class _Rest:
    """Launches of the rest of the stable version that aren't recorded yet."""

    since_s: float = -inf
    launches: int = 0
    failed: int = 0


class LaunchRecords:
    """Records the launches of one model."""

    def __init__(self, model: Model, streams: RecordStreams) -> None:
        self._model, self._streams = model, streams
        self._rest: dict[str, _Rest] = {}  # by rollout

    def add(self, launch: Launch, replies: Mapping[str, Sequence[Reply]]) -> None:
        """Records a launch. replies: by api process."""
        cohorts = {one.owner.id: one.owner.cohort for one in launch.calls if one.owner.cohort}
        if not cohorts:
            return
        answers = list(chain.from_iterable(replies.values()))
        found = {id: cohort for id, name in cohorts.items() if (cohort := parse(name))}
        first = next(iter(found.values()), None)
        if first and first.lane in ("canary", "control"):
            self._streams.write(first.rollout, records_of(self._model, launch, answers, found))
            return
        self._record_missed(found)
        rest = next((one.rollout for one in found.values() if one.lane == "stable"), "")
        if rest:
            self._count(rest, failed=any(reply.error for reply in answers))

    def _record_missed(self, found: Mapping[str, Cohort]) -> None:
        missed = Counter(one for one in found.values() if one.lane == "missed")
        for one, calls in missed.items():
            record = LaunchRecord(0.0, "missed", calls, unit=one.caller)
            self._streams.write(one.rollout, [record])

    def _count(self, rollout: str, *, failed: bool) -> None:
        """Counts a launch of the rest of the stable version."""
        now_s = clock.monotonic()
        rest = self._rest.setdefault(rollout, _Rest())
        rest.launches += 1
        rest.failed += failed
        if now_s - rest.since_s >= (_FAILED_S if rest.failed else _COUNTED_S):
            self._rest[rollout] = _Rest(now_s)
            record = LaunchRecord(0.0, "stable", 0, rest.failed, launches=rest.launches)
            self._streams.write(rollout, [record])


def records_of(
    model: Model, launch: Launch, replies: Sequence[Reply], cohorts: Mapping[str, Cohort]
) -> list[LaunchRecord]:
    """Returns the records of a launch of the canary or its control: one for each sticky caller,
    the first of which stands for the launch, and one for the others. replies: one a call; cohorts:
    by call."""
    by_caller = defaultdict[str, list[Reply]](list)
    for reply in replies:
        by_caller[cohorts[reply.id].caller].append(reply)
    arrived_s = {entry.owner.id: entry.arrived_s for entry in launch.calls}
    lane, ended_s = cohorts[replies[0].id].lane, launch.started_s + launch.engine_s
    records = []
    for caller, own in by_caller.items():
        waited_s = ended_s - min(arrived_s[reply.id] for reply in own)
        records.append(_record(model, lane, launch, own, caller, max(0.0, waited_s)))
    return [records[0], *(replace(one, launches=0) for one in records[1:])]


def _record(
    model: Model, lane: Lane, launch: Launch, replies: Sequence[Reply], caller: str, waited_s: float
) -> LaunchRecord:
    answered = [reply for reply in replies if not reply.error]
    invalid = sum(reply.error is not None and reply.error[0] == _INVALID for reply in replies)
    work = launch.work
    return LaunchRecord(
        0.0,  # the stream's ids have the time
        lane,
        calls=len(replies),
        failed=len(replies) - len(answered) - invalid,
        unit=caller,
        latency_ms=round(waited_s * 1000, 3),
        device_ms=round(launch.engine_s * 1000 / launch.width, 3),
        price=_price(model, answered),
        empty=sum(reply.output in _EMPTY for reply in answered),
        invalid=invalid,
        size=(work.rows, work.units, work.squares, work.bucket),
    )


def _price(model: Model, answered: Sequence[Reply]) -> float:
    """Returns the price of calls in the class `standard`, whatever theirs is; their units, where
    the model has no price."""
    rates = model.price.rates("standard")
    prices = (
        rates.item + rates.unit * reply.units + rates.device_us * reply.device_us
        for reply in answered
    )
    return float(sum(prices)) or float(sum(reply.units for reply in answered))
