"""`millrace bench compat`: cost of a call through other routes than POST /infer."""

import json
from collections.abc import Callable, Sequence
from statistics import median

from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, Load, drive
from ops.bench.probes.cpu import Meter, platform_meter
from ops.bench.results.report import Report, scenario
from ops.supervisor.platform import Platform

_MODEL = "minilm"
_TEXTS = [f"a short text, number {n}" for n in range(200)]
_PER_S, _WARM_UP_S, _SECONDS = 100, 2.0, 12.0

#: Calls of the same texts at these due times.
Route = Callable[[Platform, Sequence[float]], Load]


def _embeddings(encoding_format: str) -> Route:
    def route(platform: Platform, due_s: Sequence[float]) -> Load:
        request = {"model": _MODEL, "encoding_format": encoding_format}
        bodies = [json.dumps({**request, "input": text}) for text in _TEXTS]
        return Load(f"{platform.url}/v1/embeddings", due_s, bodies)

    return route


_ROUTES: dict[str, Route] = {
    "infer": lambda platform, due_s: workloads.infer(platform, _MODEL, _TEXTS, due_s),
    "embeddings": _embeddings("float"),
    "embeddings_base64": _embeddings("base64"),
}
_OTHERS = [name for name in _ROUTES if name != "infer"]


@scenario(
    "compat", *(f"{name}_{figure}_ratio <= 1.2" for name in _OTHERS for figure in ("cpu", "p50"))
)
def run(report: Report, scale: Scale) -> None:
    """Drives all routes in turn, with the same arrivals; each round begins with another one."""
    runs: dict[str, list[Calls]] = {name: [] for name in _ROUTES}
    with own_platform() as platform:
        meter = platform_meter(platform)
        for seed in range(scale.rounds):
            for n in range(len(_ROUTES)):
                name = list(_ROUTES)[(seed + n) % len(_ROUTES)]
                runs[name].append(_drive(name, platform, meter, scale, seed))
    for name, calls in runs.items():
        costs, p50s = [_cpu_ms(one) for one in calls], [_p50_ms(one) for one in calls]
        report.spread(**{f"{name}_cpu_ms": costs, f"{name}_p50_ms": p50s})
    for name in _OTHERS:
        pairs = list(zip(runs[name], runs["infer"], strict=True))
        for figure, value in (("cpu", _cpu_ms), ("p50", _p50_ms)):
            report.add(**{f"{name}_{figure}_ratio": median(value(a) / value(b) for a, b in pairs)})


def _drive(name: str, platform: Platform, meter: Meter, scale: Scale, seed: int) -> Calls:
    route = _ROUTES[name]
    drive(route(platform, poisson(_PER_S, scale.seconds(_WARM_UP_S), seed)))
    calls = drive(route(platform, poisson(_PER_S, scale.seconds(_SECONDS), seed)), meter)
    if calls.errors:
        raise BenchError(f"{calls.errors} calls through {name} failed: {calls.statuses()}")
    say(f"{name}: {_cpu_ms(calls):.3f} ms of the api's CPU a call, p50 {_p50_ms(calls):.2f} ms")
    return calls


def _cpu_ms(calls: Calls) -> float:
    """CPU of the api's process, a call."""
    return calls.cpu["api"] * 1000 / len(calls)


def _p50_ms(calls: Calls) -> float:
    return calls.percentiles(50)[0]
