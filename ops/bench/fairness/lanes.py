"""A tenant with few short texts, alone and beside another's bursts of long ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from ops.bench.data import texts as data
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, driver
from ops.bench.load.tenants import Tenants, tenants_of
from ops.supervisor.platform import Platform

_LIGHT, _BURST = "light", "burst"
_SHARE = 0.12  # of the device, that the light tenant needs
_TARGET_MS = 1000  # refuses what a burst has too much of
_SHORT, _LONG = 150, 1200  # characters: at most, at least
_BURST_CALLS, _EVERY_S, _BETWEEN_S = 60, 4.0, 0.002
_WARM_UP_S, _PEAK_S, _SECONDS = 2.0, 6.0, 24.0

#: The light tenant's calls alone, and beside the bursts.
Sides = list[tuple[Calls, Calls]]


def measure(scale: Scale) -> Sides:
    """Measures both sides in turn, in each round with the same calls."""
    texts = data.mixed()
    short = [text for text in texts if len(text) <= _SHORT]
    long = [text for text in texts if len(text) >= _LONG]
    peak = sample("minilm", name="peak", target_ms=workloads.PEAK_TARGET_MS)
    models = models_file(sample("minilm", target_ms=_TARGET_MS), peak)
    with own_platform(1, models) as platform, tenants_of(platform, [_LIGHT, _BURST]) as tenants:
        key, seconds = tenants.keys[_LIGHT], scale.seconds(_PEAK_S)
        peak_per_s = workloads.peak_per_s(
            platform, "peak", short, _WARM_UP_S, seconds, [key] * len(short)
        )
        return [
            (
                _light(platform, tenants, short, _SHARE * peak_per_s, scale, seed),
                _light(platform, tenants, short, _SHARE * peak_per_s, scale, seed, long),
            )
            for seed in range(scale.rounds)
        ]


def _light(
    platform: Platform,
    tenants: Tenants,
    short: Sequence[str],
    per_s: float,
    scale: Scale,
    seed: int,
    beside: Sequence[str] = (),
) -> Calls:
    seconds = _WARM_UP_S + scale.seconds(_SECONDS)
    keys = [tenants.keys[_LIGHT]] * len(short)
    load = workloads.infer(platform, "minilm", short, poisson(per_s, seconds, seed), keys=keys)
    bursts = _bursts(platform, tenants, beside, seconds) if beside else nullcontext()
    with driver(load) as running, bursts:
        running.go()
        calls = running.calls().since(_WARM_UP_S)
    say(f"short texts {'beside bursts' if beside else 'alone'}, {per_s:.1f}/s: {calls}")
    return calls


@contextmanager
def _bursts(
    platform: Platform, tenants: Tenants, texts: Sequence[str], seconds: float
) -> Iterator[None]:
    due_s = [
        since * _EVERY_S + n * _BETWEEN_S
        for since in range(int(seconds / _EVERY_S) + 1)
        for n in range(_BURST_CALLS)
    ]
    keys = [tenants.keys[_BURST]] * len(texts)
    with driver(workloads.infer(platform, "minilm", texts, due_s, keys=keys)) as running:
        running.go()
        yield
        running.stop()
        say(f"the bursts: {running.calls()}")
