"""How the whole system stands, as gauges: a keeper counts it, whoever else may run."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from redis import Redis, RedisError
from sqlalchemy import Engine as Database

from jobs import clock
from jobs.calls.profile import Profile
from jobs.calls.redis import RedisLanes
from jobs.models.model import Model
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.states import JOB_STATES
from jobs.store.db import Tx
from jobs.store.monitoring import gauges
from jobs.store.monitoring.gauges import Queued
from jobs.store.queue import workers
from jobs.telemetry.metrics import metrics, record
from jobs.telemetry.metrics.gauge_table import Table
from jobs.telemetry.metrics.label_limit import OTHER
from jobs.telemetry.metrics.metrics import TENANTS
from jobs.telemetry.reports import reader
from jobs.telemetry.reports.reports import Reading

EVERY_S = 5.0
RESTS = 100
"""What was counted is counted again after so many times as long as it took."""
_MOST_REST_S = 60.0
"""What took long was, perhaps, a database that stood still: its figures must not outlast that."""
_SELDOM_S = 60.0  # between two looks at what costs more and changes less
STUCK_AFTER_S = 600.0
_NOBODY = "nobody/0"  # a slot that is never busy
_MOST_PAUSE_S = 600.0  # between two counts of jobs that have ended
_LOOKS = 12  # in a row, of the last minute: who waits in all of them is owed a share


def rest_s(took_s: float) -> float:
    """Until the next look, after one that took so long."""
    return min(max(EVERY_S, RESTS * took_s), _MOST_REST_S)


@dataclass(slots=True)
class _Heard:
    """What Redis says: of all processes' last minute; of each model, how many calls wait, and how
    long its launches take."""

    minute: Reading
    calls: dict[str, int] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)


class GaugeCollector:
    """Holds what it needs to compare one look with those before."""

    def __init__(self, settings: Settings, redis: "Redis", file: ModelsFile) -> None:
        self._settings, self._redis, self._file = settings, redis, file
        self._seldom_s = self._count_s = -inf  # the next time for either
        self._ended: Mapping[str, int] = {}
        self._moved_s: dict[str, float] = {}  # by model, when items of it were last seen to end
        self._waited: deque[set[str]] = deque(maxlen=_LOOKS)  # tenants, look by look
        self._jobs, self._stuck = Table(metrics.JOBS), Table(metrics.JOBS_STUCK)
        self._items, self._calls = Table(metrics.QUEUE_ITEMS), Table(metrics.QUEUE_CALLS)
        self._ages, self._drain = Table(metrics.QUEUE_AGE_S), Table(metrics.DRAIN_S)
        self._workers, self._ready = Table(metrics.WORKERS), Table(metrics.READY)
        self._transfers = Table(metrics.TRANSFERS_WAITING)
        self._shares = Table(metrics.TENANT_SHARE)

    def run_once(self, database: Database) -> None:
        """One look. Redis may be away: then nothing is known of calls."""
        heard = self._hear()
        with database.begin() as tx:
            died = self._look(tx, heard)
        for how, count in died.items():  # told of now: what is rolled back is told again
            record.worker_died(how, count)

    def _hear(self) -> _Heard:
        heard = _Heard(reader.read(self._redis))
        with suppress(RedisError):
            for model in self._file.models:
                lanes = RedisLanes(self._redis, model.key)
                heard.calls[model.key] = sum(lane.rows for lane in lanes.look(_NOBODY).lanes)
                with suppress(ValueError, LookupError, TypeError):  # of another release
                    heard.profiles[model.key] = Profile.unpack(lanes.profile())
        return heard

    def _look(self, tx: Tx, heard: _Heard) -> Mapping[str, int]:
        """Workers that died meanwhile, by how."""
        silent_s = 2 * self._settings.lease_s
        queued, ready = gauges.queue(tx), workers.ready_counts(tx, silent_s)
        died = gauges.deaths(tx)
        self._note_moves(heard.minute, queued)
        if clock.monotonic() >= self._seldom_s:
            self._seldom_s = clock.monotonic() + _SELDOM_S
            self._look_closely(tx, queued, ready)
        if clock.monotonic() >= self._count_s:
            self._count_ended(tx)
        states: dict[str, int] = dict.fromkeys(JOB_STATES, 0)
        states |= {**self._ended, **gauges.open_jobs(tx)}
        self._jobs.set({(state,): count for state, count in states.items()})
        self._set_queues(queued, ready, heard)
        self._workers.set(gauges.workers(tx, silent_s))
        self._ready.set({(key,): ready.get(key, 0) for key in self._keys(ready)})
        pending, oldest_s = gauges.webhooks(tx)
        metrics.WEBHOOKS_PENDING.set(pending)
        metrics.WEBHOOK_AGE_S.set(oldest_s)
        transfers = {"import": 0, "export": 0} | gauges.transfers(tx)
        self._transfers.set({(kind,): count for kind, count in transfers.items()})
        self._set_shares(tx, queued, heard.minute)
        return died

    def _look_closely(self, tx: Tx, queued: Sequence[Queued], ready: Mapping[str, int]) -> None:
        still_s = clock.monotonic() - STUCK_AFTER_S
        oldest = _oldest(queued)
        unmoved = {
            key
            for key, moved_s in self._moved_s.items()
            if moved_s < still_s and oldest.get(key, 0.0) > STUCK_AFTER_S
        }
        stuck = gauges.stuck(tx, STUCK_AFTER_S, unmoved)
        self._stuck.set(
            {(key,): stuck.get(key, 0) if key in ready else 0 for key in self._keys(ready)}
        )
        metrics.DATABASE_BYTES.set(gauges.size(tx))

    def _count_ended(self, tx: Tx) -> None:
        """All that are kept: there may be so many of them that it takes long."""
        since_s = clock.monotonic()
        self._ended = gauges.ended_jobs(tx)
        now_s = clock.monotonic()
        self._count_s = now_s + min(RESTS * (now_s - since_s), _MOST_PAUSE_S)

    def _note_moves(self, seen: Reading, queued: Iterable[Queued]) -> None:
        now_s = clock.monotonic()
        for one in queued:
            self._moved_s.setdefault(one.model, now_s)
        for model in seen.increase_by("millrace_items_total", "model"):
            self._moved_s[model] = now_s

    def _keys(self, others: Collection[str]) -> list[str]:
        """Models that are declared, and those that are there besides."""
        return list(dict.fromkeys([*(model.key for model in self._file.models), *others]))

    def _set_queues(
        self, queued: Sequence[Queued], ready: Mapping[str, int], heard: _Heard
    ) -> None:
        items: dict[str, int] = {}
        for one in queued:
            items[one.model] = items.get(one.model, 0) + one.items
        oldest = _oldest(queued)
        keys = self._keys([*items, *ready])
        self._items.set({(key,): items.get(key, 0) for key in keys})
        self._calls.set({(key,): count for key, count in heard.calls.items()})
        self._ages.set({(key,): oldest.get(key, 0.0) for key in keys})
        drain = {}
        for model in self._file.models:
            waiting = items.get(model.key, 0) + heard.calls.get(model.key, 0)
            replicas = max(1, ready.get(model.key, 0))
            drain[model.pool, model.key] = waiting * _entry_s(model, heard) / replicas
        self._drain.set(drain)

    def _set_shares(self, tx: Tx, queued: Iterable[Queued], seen: Reading) -> None:
        self._waited.append({one.tenant for one in queued if one.claimable})
        owed = set.intersection(*self._waited) if len(self._waited) == _LOOKS else set[str]()
        used = seen.increase_by("millrace_tenant_device_seconds_total", "tenant")
        if OTHER in used:  # whoever has no series of its own may be among those
            owed &= used.keys()
        weights = gauges.weights(tx, owed)
        ratios = shares({one: weights.get(one, 1.0) for one in owed}, used)
        self._shares.set({(TENANTS(tenant),): ratio for tenant, ratio in ratios.items()})
        metrics.FAIRNESS.set(jain(ratios.values()))


def _entry_s(model: Model, heard: _Heard) -> float:
    """What one more entry takes of a worker: as measured over the last minute, else as its workers
    have told; before there ever was one, as if full launches just met the target: what waits for
    the first worker must show."""
    slots = model.limits.in_flight
    if count := heard.minute.increase("millrace_entries_total", model=model.key):
        busy_s = heard.minute.increase("millrace_model_device_seconds_total", model=model.key)
        return busy_s / count / slots
    profile = heard.profiles.get(model.key, Profile())
    times = [profile.buckets[bucket] for bucket in sorted(profile.buckets)]
    if not times:
        return model.target_ms / 1000 / model.limits.max_batch / slots
    middle = times[len(times) // 2]
    return middle.full_ms / 1000 / middle.full_rows / (profile.slots or slots)


def _oldest(queued: Iterable[Queued]) -> dict[str, float]:
    """By model, since when the oldest slice could be claimed, s."""
    oldest: dict[str, float] = {}
    for one in queued:
        if one.claimable:
            oldest[one.model] = max(one.oldest_s, oldest.get(one.model, 0.0))
    return oldest


def shares(weights: Mapping[str, float], used: Mapping[str, float]) -> dict[str, float]:
    """What each of them had, by what was its due of what they all had; nothing was used: nothing
    is owed."""
    total = sum(used.get(tenant, 0.0) for tenant in weights)
    if not total:
        return {}
    all_weights = sum(weights.values())
    return {
        tenant: used.get(tenant, 0.0) / (total * weight / all_weights)
        for tenant, weight in weights.items()
    }


def jain(ratios: Collection[float]) -> float:
    """1 where all have the same, 1/n where one of n has everything."""
    squares = sum(ratio * ratio for ratio in ratios)
    return sum(ratios) ** 2 / (len(ratios) * squares) if squares else 1.0
