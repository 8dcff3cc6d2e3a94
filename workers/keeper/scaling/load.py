"""Load of every pool and model, by what processes report and what waits in Redis."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from redis import Redis, RedisError

from jobs import clock
from jobs.calls.profile import Profile, mean_profile
from jobs.calls.redis import RedisLanes
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.scaling.measure import ModelLoad, ModelQueues, Queue, measure, measure_apis
from jobs.scaling.signals import Signals
from jobs.states import API_POOL
from jobs.telemetry.reports.reports import ReportSet

_NO_SLOT = "nobody/0"  # a slot that is never busy


def of_pools(
    reports: ReportSet,
    queues: ModelQueues,
    models: Registry,
    workers: Mapping[tuple[str, str], int],
    requests_s: float,
) -> dict[str, Signals]:
    """Returns the load of each pool that models or workers have, and of the apis. workers: live
    ones by pool and state; requests_s: that an api carries."""
    at_s = clock.now().timestamp()
    pools = sorted({*models.pools(), *(pool for pool, _ in workers)} - {API_POOL})
    of_workers = {
        pool: measure(
            pool,
            [(model, _names(models, model)) for model in models.of_pool(pool)],
            reports,
            queues,
            {state: count for (its, state), count in workers.items() if its == pool},
            at_s,
        )
        for pool in pools
    }
    return {API_POOL: measure_apis(reports, requests_s, at_s), **of_workers}


def of_models(
    keys: Iterable[str], reports: ReportSet, queues: ModelQueues, models: Registry
) -> list[ModelLoad]:
    """Returns the load by these models (name@version), whatever their pools."""
    recent, known = reports.recent(), [model for key in keys if (model := models.get(key))]
    return [ModelLoad.of(model, _names(models, model), reports, recent, queues) for model in known]


def _names(models: Registry, model: Model) -> list[str]:
    return [one.key for one in models.with_adapters([model])]


def read_queues(redis: "Redis", models: Registry) -> ModelQueues:
    """Returns what Redis knows of each model's calls."""
    profiles, calls = dict[str, Profile](), dict[str, Queue]()
    with suppress(RedisError):
        for model in models.stages:
            lanes = RedisLanes(redis, model.key)
            calls[model.key] = Queue.from_lanes(lanes.look(_NO_SLOT))
            with suppress(ValueError, LookupError, TypeError):  # from another release
                profiles[model.key] = mean_profile(lanes)
    return ModelQueues(profiles, calls)
