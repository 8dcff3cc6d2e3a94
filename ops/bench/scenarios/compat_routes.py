"""`millrace bench compat`: cost of a call through other routes than POST /infer."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

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


def _embeddings(encoding_format: str, platform: Platform, due_s: Sequence[float]) -> Load:
    request = {"model": _MODEL, "encoding_format": encoding_format}
    bodies = [json.dumps({**request, "input": text}) for text in _TEXTS]
    return Load(f"{platform.url}/v1/embeddings", due_s, bodies)


_ROUTES: dict[str, Route] = {
    "infer": lambda platform, due_s: workloads.infer(platform, _MODEL, _TEXTS, due_s),
    "embeddings": partial(_embeddings, "float"),
    "embeddings_base64": partial(_embeddings, "base64"),
}
_OTHERS = [name for name in _ROUTES if name != "infer"]


@scenario(
    "compat", *(f"{name}_{figure}_ratio <= 1.2" for name in _OTHERS for figure in ("cpu", "p50"))
)
def run(report: Report, scale: Scale) -> None:
    """Drives all routes in turn, with the same arrivals; each round begins with another one."""
    costs: dict[str, list[float]] = {name: [] for name in _ROUTES}
    p50s: dict[str, list[float]] = {name: [] for name in _ROUTES}
    with own_platform() as platform:
        meter = platform_meter(platform)
        for seed in range(scale.rounds):
            for n in range(len(_ROUTES)):
                name = list(_ROUTES)[(seed + n) % len(_ROUTES)]
                calls = _drive(_ROUTES[name], platform, meter, scale, seed)
                costs[name].append(calls.cpu_ms_of("api"))
                p50s[name].append(calls.percentiles(50)[0])
                say(f"{name}: {costs[name][-1]:.3f} ms of the api's CPU a call, "
                    f"p50 {p50s[name][-1]:.2f} ms")  # fmt: skip
    for name in _ROUTES:
        report.spread(f"{name}_", cpu_ms=costs[name], p50_ms=p50s[name])
    for name in _OTHERS:
        for figure, values in (("cpu", costs), ("p50", p50s)):
            ratios = [a / b for a, b in zip(values[name], values["infer"], strict=True)]
            report.add(f"{name}_{figure}_", ratio=median(ratios))


def _drive(route: Route, platform: Platform, meter: Meter, scale: Scale, seed: int) -> Calls:
    drive(route(platform, poisson(_PER_S, scale.seconds(_WARM_UP_S), seed)))
    load = route(platform, poisson(_PER_S, scale.seconds(_SECONDS), seed))
    return drive(load, meter).all_right()
