"""Gauges of the whole system, counted by a keeper."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from redis import Redis, RedisError
from sqlalchemy import Engine as Database

from jobs import clock
from jobs.calls.profile import Profile, mean_profile
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
from jobs.telemetry.metrics.labels import OTHER, GaugeTable
from jobs.telemetry.metrics.metrics import TENANTS
from jobs.telemetry.reports import reader
from jobs.telemetry.reports.reports import ReportSet
from workers.service import Service

MIN_PAUSE_S = 5.0
PAUSE_FACTOR = 100  # pause after a count, in durations of that count
_MAX_PAUSE_S = 60.0  # a slow count may be due to a database that stalled; its figures are stale
_SELDOM_S = 60.0  # between two counts of figures that cost more and change less
_MAX_ENDED_PAUSE_S = 600.0  # between two counts of jobs that have ended
STUCK_AFTER_S = 600.0
_NO_SLOT = "nobody/0"  # a slot that is never busy
_COUNTS = 12  # of the last minute: tenants that wait in all of them have a fair share


def pause_s(took_s: float) -> float:
    """Pause before the next count, after one that took took_s."""
    return min(max(MIN_PAUSE_S, PAUSE_FACTOR * took_s), _MAX_PAUSE_S)


@dataclass(slots=True)
class _RedisFigures:
    """Figures that Redis holds."""

    minute: ReportSet  #: all processes' last minute
    calls: dict[str, int] = field(default_factory=dict)  #: calls that wait, by model
    profiles: dict[str, Profile] = field(default_factory=dict)  #: launch times, by model


class GaugeCollector(Service):
    """Keeper service: counts, and compares each count with those before."""

    def __init__(
        self, settings: Settings, redis: "Redis", file: ModelsFile, database: Database
    ) -> None:
        super().__init__("census", MIN_PAUSE_S)
        self._settings, self._redis, self._file, self._database = settings, redis, file, database
        self._seldom_s = self._count_s = -inf  # monotonic times at which either is due
        self._ended: Mapping[str, int] = {}
        self._moved_s: dict[str, float] = {}  # by model, when items of it were last seen to end
        self._waited: deque[set[str]] = deque(maxlen=_COUNTS)  # tenants that waited, by count
        self._jobs, self._stuck = GaugeTable(metrics.JOBS), GaugeTable(metrics.JOBS_STUCK)
        self._items, self._calls = GaugeTable(metrics.QUEUE_ITEMS), GaugeTable(metrics.QUEUE_CALLS)
        self._ages, self._drain = GaugeTable(metrics.QUEUE_AGE_S), GaugeTable(metrics.DRAIN_S)
        self._workers, self._ready = GaugeTable(metrics.WORKERS), GaugeTable(metrics.READY)
        self._transfers = GaugeTable(metrics.TRANSFERS_WAITING)
        self._shares = GaugeTable(metrics.TENANT_SHARE)

    def run_once(self) -> int:
        """Counts once; while Redis is away nothing is known of calls. Raises database errors."""
        since_s = clock.monotonic()
        try:
            with record.keeper_run(self.name):
                figures = self._read_redis()
                with self._database.begin() as tx:
                    died = self._count(tx, figures)
                for how, count in died.items():  # after the commit, which marks them as counted
                    record.worker_died(how, count)
        finally:
            self.interval_s = pause_s(clock.monotonic() - since_s)
        return 0

    def _read_redis(self) -> _RedisFigures:
        figures = _RedisFigures(reader.read(self._redis))
        with suppress(RedisError):
            for model in self._file.models.stages:
                lanes = RedisLanes(self._redis, model.key)
                figures.calls[model.key] = sum(lane.rows for lane in lanes.look(_NO_SLOT).lanes)
                with suppress(ValueError, LookupError, TypeError):  # from another release
                    figures.profiles[model.key] = mean_profile(lanes)
        return figures

    def _count(self, tx: Tx, figures: _RedisFigures) -> Mapping[str, int]:
        """Sets the gauges; returns the workers that died since the last count, by how."""
        silent_s = 2 * self._settings.lease_s
        queued, ready = gauges.queue(tx), workers.ready_counts(tx, silent_s)
        died = gauges.deaths(tx)
        self._record_moves(figures.minute, queued)
        if clock.monotonic() >= self._seldom_s:
            self._seldom_s = clock.monotonic() + _SELDOM_S
            self._count_seldom(tx, queued, ready)
        if clock.monotonic() >= self._count_s:
            self._count_ended(tx)
        states: dict[str, int] = dict.fromkeys(JOB_STATES, 0)
        states |= {**self._ended, **gauges.open_jobs(tx)}
        self._jobs.set({(state,): count for state, count in states.items()})
        self._set_queues(queued, ready, figures)
        self._workers.set(gauges.workers(tx, silent_s))
        self._ready.set({(key,): ready.get(key, 0) for key in self._keys(ready)})
        pending, oldest_s = gauges.webhooks(tx)
        metrics.WEBHOOKS_PENDING.set(pending)
        metrics.WEBHOOK_AGE_S.set(oldest_s)
        transfers = {"import": 0, "export": 0} | gauges.transfers(tx)
        self._transfers.set({(kind,): count for kind, count in transfers.items()})
        self._set_shares(tx, queued, figures.minute)
        return died

    def _count_seldom(self, tx: Tx, queued: Sequence[Queued], ready: Mapping[str, int]) -> None:
        since_s = clock.monotonic() - STUCK_AFTER_S
        oldest = _oldest(queued)
        unmoved = {
            key
            for key, moved_s in self._moved_s.items()
            if moved_s < since_s and oldest.get(key, 0.0) > STUCK_AFTER_S
        }
        stuck = gauges.stuck(tx, STUCK_AFTER_S, unmoved)
        self._stuck.set(
            {(key,): stuck.get(key, 0) if key in ready else 0 for key in self._keys(ready)}
        )
        metrics.DATABASE_BYTES.set(gauges.size(tx))

    def _count_ended(self, tx: Tx) -> None:
        """Counts all ended jobs that are kept, which may take long."""
        since_s = clock.monotonic()
        self._ended = gauges.ended_jobs(tx)
        now_s = clock.monotonic()
        self._count_s = now_s + min(PAUSE_FACTOR * (now_s - since_s), _MAX_ENDED_PAUSE_S)

    def _record_moves(self, minute: ReportSet, queued: Iterable[Queued]) -> None:
        now_s = clock.monotonic()
        for one in queued:
            self._moved_s.setdefault(one.model, now_s)
        for model in minute.increase_by("millrace_items_total", "model"):
            self._moved_s[model] = now_s

    def _keys(self, others: Collection[str]) -> list[str]:
        """Keys of the declared models, then of others that exist."""
        return list(dict.fromkeys([*(model.key for model in self._file.models.stages), *others]))

    def _set_queues(
        self, queued: Sequence[Queued], ready: Mapping[str, int], figures: _RedisFigures
    ) -> None:
        items: dict[str, int] = {}
        for one in queued:
            items[one.model] = items.get(one.model, 0) + one.items
        oldest = _oldest(queued)
        keys = self._keys([*items, *ready])
        self._items.set({(key,): items.get(key, 0) for key in keys})
        self._calls.set({(key,): count for key, count in figures.calls.items()})
        self._ages.set({(key,): oldest.get(key, 0.0) for key in keys})
        drain = dict[tuple[str, ...], float]()
        for model in self._file.models.stages:
            keys = [one.key for one in self._file.models.with_adapters([model])]
            waiting = sum(items.get(key, 0) for key in keys) + figures.calls.get(model.key, 0)
            replicas = max(1, ready.get(model.key, 0))
            drain_s = waiting * _entry_s(model, figures) / replicas
            drain |= {(pool, model.key): drain_s for pool in model.pools}
        self._drain.set(drain)

    def _set_shares(self, tx: Tx, queued: Iterable[Queued], minute: ReportSet) -> None:
        self._waited.append({one.tenant for one in queued if one.claimable})
        owed = set.intersection(*self._waited) if len(self._waited) == _COUNTS else set[str]()
        used = minute.increase_by("millrace_tenant_device_seconds_total", "tenant")
        if OTHER in used:  # tenants without a series of their own may be among those
            owed &= used.keys()
        weights = gauges.weights(tx, owed)
        ratios = shares({one: weights.get(one, 1.0) for one in owed}, used)
        self._shares.set({(TENANTS(tenant),): ratio for tenant, ratio in ratios.items()})
        metrics.FAIRNESS.set(jain(ratios.values()))


def _entry_s(model: Model, figures: _RedisFigures) -> float:
    """Seconds of a worker that one more entry takes.

    As measured over the last minute, else as the workers' profile predicts; before there was any
    worker, as if full launches just met the target, so that waiting work shows.
    """
    slots = model.limits.in_flight
    if count := figures.minute.increase("millrace_entries_total", model=model.key):
        busy_s = figures.minute.increase("millrace_model_device_seconds_total", model=model.key)
        return busy_s / count / slots
    profile = figures.profiles.get(model.key, Profile())
    times = [profile.buckets[bucket] for bucket in sorted(profile.buckets)]
    if not times:
        return model.target_ms / 1000 / model.limits.most_rows / slots
    middle = times[len(times) // 2]
    return middle.full_ms / 1000 / middle.full_rows / (profile.slots or slots)


def _oldest(queued: Iterable[Queued]) -> dict[str, float]:
    """Seconds for which the oldest claimable slice has waited, by model."""
    oldest: dict[str, float] = {}
    for one in queued:
        if one.claimable:
            oldest[one.model] = max(one.oldest_s, oldest.get(one.model, 0.0))
    return oldest


def shares(weights: Mapping[str, float], used: Mapping[str, float]) -> dict[str, float]:
    """Ratio of device time used to the fair share of it, by tenant; empty if none was used."""
    total = sum(used.get(tenant, 0.0) for tenant in weights)
    if not total:
        return {}
    all_weights = sum(weights.values())
    return {
        tenant: used.get(tenant, 0.0) / (total * weight / all_weights)
        for tenant, weight in weights.items()
    }


def jain(ratios: Collection[float]) -> float:
    """Jain's fairness index: 1 where all ratios are equal, 1/n where one of n has everything."""
    squares = sum(ratio * ratio for ratio in ratios)
    return sum(ratios) ** 2 / (len(ratios) * squares) if squares else 1.0
