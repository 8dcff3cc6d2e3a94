"""What it costs to tell who calls, and to hold them to limits: CPU of the api's process a call."""

from ops.bench.fairness.tenants import Tenants
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Load, drive
from ops.bench.probes import cpu
from ops.supervisor.platform import Platform

Cost = dict[str, float]
"""ms of CPU a call, by part of the platform (`cpu.of_platform`)."""

_TENANT = "limited"
_PER_S, _WARM_UP_S, _SECONDS = 300, 1.0, 9.0
_LIMITS = {"requests_per_s": 1e6, "tokens_per_s": 1e9, "calls_in_flight": 1_000_000}


def rounds(effort: Scale) -> list[tuple[Cost, Cost]]:
    """(without a key, with one and limits of every kind, of the model and of the key), in turn; on
    two platforms, since one that has a key lets nobody in without."""
    models = models_file(sample("batchstring"))
    with (
        own_platform(models=models) as without,
        own_platform(models=models) as limited,
        Tenants(limited, [_TENANT]) as tenants,
    ):
        tenants.limit(_TENANT, _LIMITS, model="batchstring")
        tenants.limit(_TENANT, _LIMITS, key=tenants.key_ids[_TENANT])
        key = tenants.keys[_TENANT]
        return [
            (_cost(without, "", effort, seed), _cost(limited, key, effort, seed))
            for seed in range(effort.rounds)
        ]


def _cost(platform: Platform, key: str, effort: Scale, seed: int) -> Cost:
    drive(_load(platform, key, _WARM_UP_S, seed))
    load = _load(platform, key, effort.seconds(_SECONDS), seed)
    calls = drive(load, cpu.of_platform(platform))
    if calls.errors:
        raise BenchError(f"{calls.errors} calls failed: {calls.said()}")
    cost = {part: used * 1000 / len(calls) for part, used in calls.cpu.items()}
    said = ", ".join(f"{part} {ms:.3f}" for part, ms in cost.items())
    say(f"{'with a key and limits' if key else 'without'}: ms of CPU a call: {said}")
    return cost


def _load(platform: Platform, key: str, seconds: float, seed: int) -> Load:
    return workloads.batchstring(platform, poisson(_PER_S, seconds, seed), [key] if key else ())
