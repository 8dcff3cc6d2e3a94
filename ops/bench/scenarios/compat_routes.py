"""`millrace bench doors`: what a call costs through other doors than POST /infer."""

import json
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import own_platform, say, with_spread
from ops.bench.harness.scale import FULL, Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, Load, drive
from ops.bench.probes import cpu
from ops.bench.probes.cpu import Meter
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform

_MOST_RATIO = "<= 1.2"
_MODEL = "minilm"
_TEXTS = [f"a short text, number {n}" for n in range(200)]
_PER_S, _WARM_UP_S, _SECONDS = 100, 2.0, 12.0

Door = Callable[[Platform, Sequence[float]], Load]
"""Its calls of the same texts, due at these times."""


def _infer(platform: Platform, due_s: Sequence[float]) -> Load:
    return workloads.infer(platform, _MODEL, _TEXTS, due_s)


def _embeddings(encoding_format: str) -> Door:
    def door(platform: Platform, due_s: Sequence[float]) -> Load:
        asked = {"model": _MODEL, "encoding_format": encoding_format}
        bodies = [json.dumps({**asked, "input": text}) for text in _TEXTS]
        return Load(f"{platform.url}/v1/embeddings", due_s, bodies)

    return door


_DOORS: Mapping[str, Door] = {
    "embeddings": _embeddings("float"),
    "embeddings_base64": _embeddings("base64"),
}
"""By the name that their figures begin with; each is compared with /infer."""

ASKED = {f"{name}_{what}_ratio": _MOST_RATIO for name in _DOORS for what in ("cpu", "p50")}


def run(effort: Scale = FULL) -> None:
    """One platform; all doors in turn, with the same arrivals. Each round begins with another."""
    report = Report("doors", ASKED, effort.quick)
    doors: dict[str, Door] = {"infer": _infer, **_DOORS}
    runs: dict[str, list[Calls]] = {name: [] for name in doors}
    with own_platform() as platform:
        meter = cpu.of_platform(platform)
        for seed in range(effort.rounds):
            for n in range(len(doors)):
                name = list(doors)[(seed + n) % len(doors)]
                runs[name].append(_driven(name, platform, doors[name], meter, effort, seed))
    for name, calls in runs.items():
        report.add(**with_spread(f"{name}_cpu_ms", [_cpu_ms(one) for one in calls]))
        report.add(**with_spread(f"{name}_p50_ms", [_p50_ms(one) for one in calls]))
    for name in _DOORS:
        pairs = list(zip(runs[name], runs["infer"], strict=True))
        report.add(
            **{
                f"{name}_cpu_ratio": median(_cpu_ms(a) / _cpu_ms(b) for a, b in pairs),
                f"{name}_p50_ratio": median(_p50_ms(a) / _p50_ms(b) for a, b in pairs),
            }
        )
    report.finish()


def _driven(
    name: str, platform: Platform, door: Door, meter: Meter, effort: Scale, seed: int
) -> Calls:
    drive(door(platform, poisson(_PER_S, effort.seconds(_WARM_UP_S), seed)))
    calls = drive(door(platform, poisson(_PER_S, effort.seconds(_SECONDS), seed)), meter)
    if calls.errors:
        raise BenchError(f"{calls.errors} calls through {name} failed: {calls.said()}")
    say(f"{name}: {_cpu_ms(calls):.3f} ms of the api's CPU a call, p50 {_p50_ms(calls):.2f} ms")
    return calls


def _cpu_ms(calls: Calls) -> float:
    """Of the api's process, a call."""
    return calls.cpu["api"] * 1000 / len(calls)


def _p50_ms(calls: Calls) -> float:
    return calls.percentiles(50)[0]
