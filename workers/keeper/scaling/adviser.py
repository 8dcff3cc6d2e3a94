"""Adviser of workers: which leave items to cheaper ones, and which models need another worker.

Every keeper may advise: all see the same figures, and what the last one said."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from redis import Redis, RedisError
from sqlalchemy import Engine as Database

from jobs import clock
from jobs.models.model import Model
from jobs.models.watcher import ModelsFile
from jobs.scaling.advice import advice
from jobs.scaling.advice.advice import Advice
from jobs.scaling.advice.cheapest import leaving
from jobs.scaling.advice.offers import Offer, offers
from jobs.scaling.advice.replicas import candidates, replicas
from jobs.scaling.measure import ModelQueues
from jobs.scaling.signals import Signals
from jobs.settings import Settings
from jobs.store.scaling import promises
from jobs.telemetry.reports.reports import ReportSet
from workers.keeper.scaling import load

_log = logging.getLogger(__name__)
_PAUSE_FACTOR = 20  # pause after a look at the open jobs, in durations of that look
_LONGEST_PAUSE_S = 2.0


class Adviser:
    """Advises the workers of one platform."""

    def __init__(
        self, settings: Settings, redis: "Redis", file: ModelsFile, database: Database
    ) -> None:
        self._settings, self._redis, self._file, self._database = settings, redis, file, database
        self.active = False  #: prices differ: look often
        self._looked_s, self._took_s = 0.0, 0.0  # monotonic; of the latest look at the jobs
        self._left_s: Mapping[str, float] = {}  # by model, as of that look
        self._looked_at: frozenset[str] = frozenset()  # models, likewise

    def advise(self, reports: ReportSet, queues: ModelQueues, loads: Mapping[str, Signals]) -> None:
        """Tells workers what these figures say. loads: by pool. Raises database errors."""
        found = self._offers(reports, loads) if self._settings.cheaper_s else {}
        self.active = bool(found)
        try:
            before = advice.read(self._redis)
            ready = candidates(reports)
            by_model = load.of_models(ready, reports, queues, self._file.models)
            now = Advice(self._leave(found, before), replicas(by_model, ready))
            if now or before:
                now.write(self._redis)
        except RedisError as error:
            _log.warning("workers can't be advised: %s", error)

    def _offers(
        self, reports: ReportSet, loads: Mapping[str, Signals]
    ) -> Mapping[str, list[Offer]]:
        """Returns the offers for models whose workers differ in price, and of whose pools all is
        known."""
        models, told = self._file.models, _ready_by_pool(reports)
        known = {
            pool: its.used
            for pool, its in loads.items()
            if not its.missing and told[pool] <= its.ready  # else one has ended since
        }
        queued = reports.gauge_by("millrace_queue_items", "model")
        items = {
            model.key: sum(queued.get(one.key, 0.0) for one in models.with_adapters([model]))
            for model in models
        }
        found = offers(models, reports, items, known)
        return {
            model.key: found[model.key]
            for model in models
            if model.key in found and known.keys() >= set(model.pools)
        }

    def _leave(self, found: Mapping[str, list[Offer]], before: Advice) -> dict[str, list[str]]:
        left_s, leave = self._look_at_jobs(found) if found else {}, dict[str, list[str]]()
        for key, its in found.items():
            workers = {worker for worker, models in before.leave.items() if key in models}
            for worker in leaving(its, left_s.get(key), workers):
                leave.setdefault(worker, []).append(key)
        return leave

    def _look_at_jobs(self, keys: Iterable[str]) -> Mapping[str, float]:
        """Returns the time left for the jobs of each model and its adapters; looks seldom where a
        look takes long."""
        now_s = clock.monotonic()
        pause_s = min(_PAUSE_FACTOR * self._took_s, _LONGEST_PAUSE_S)
        keys = frozenset(keys)
        if now_s >= self._looked_s + pause_s or not keys <= self._looked_at:
            by_name = self._names(keys)
            try:
                with self._database.begin() as tx:
                    found = promises.left_s(tx, by_name.values(), self._settings.cheaper_s)
            finally:  # one that fails takes its time, too
                self._looked_s = clock.monotonic()
                self._took_s = self._looked_s - now_s
            self._left_s = _first(found, {name: one.served_by.key for name, one in by_name.items()})
            self._looked_at = keys
        since_s = now_s - self._looked_s
        return {key: left_s - max(0.0, since_s) for key, left_s in self._left_s.items()}

    def _names(self, keys: Iterable[str]) -> dict[str, Model]:
        """Returns the models by the names that their jobs have."""
        models = self._file.models
        served = [model for key in keys if (model := models.get(key))]
        return {model.key: model for model in models.with_adapters(served)}


def _ready_by_pool(reports: ReportSet) -> Counter[str]:
    """Counts the workers that reported themselves ready."""
    workers = [report.details for report in reports.by_kind("worker").reports]
    return Counter(its.get("pool", "") for its in workers if its.get("state") == "ready")


def _first(left_s: Mapping[str, float], served_by: Mapping[str, str]) -> dict[str, float]:
    first = dict[str, float]()
    for name, s in left_s.items():
        key = served_by[name]
        first[key] = min(s, first.get(key, s))
    return first
