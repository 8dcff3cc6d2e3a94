"""`millrace bench isolation`: one tenant's requests, alone and beside one that takes all it can."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jobs import clock
from ops.bench.harness.child_process import child
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load.light import KINDS, Latencies, probe
from ops.bench.load.tenants import Tenants, tenants_of
from ops.bench.results.plots import distributions, picture
from ops.bench.results.report import Report, scenario

_HOSTILE, _LIGHT = "hostile", "light"
_LIMITS = {"requests_per_s": 20, "tokens_per_s": 1e9, "calls_in_flight": 16}
_SECONDS, _WARM_UP_S = 12.0, 1.0


@scenario(
    "isolation",
    "livez_max_ms <= 100",
    "livez_ratio <= 1.5",
    "call_ratio <= 1.5",
    "job_ratio <= 1.5",
    "list_ratio <= 1.5",
)
def run(report: Report, scale: Scale) -> Any:
    """Measures the light tenant alone and beside the other, in turn.

    Ratios are those of the medians of the rounds' p95.
    """
    models = models_file(sample("echo"), sample("batchstring"))
    with own_platform(1, models) as platform, tenants_of(platform, [_HOSTILE, _LIGHT]) as tenants:
        tenants.limit(_HOSTILE, _LIMITS)
        measure = partial(_measure, platform.url, tenants, scale)
        found = scale.in_turn(
            {
                "alone": lambda _: measure(is_attacked=False),
                "beside": lambda _: measure(is_attacked=True),
            }
        )
    for kind in KINDS:
        for side, runs in found.items():
            p95s = [float(np.percentile(each[kind], 95)) for each in runs]
            report.median(f"{kind}_p95_", **{f"{side}_ms": p95s})
        report.add(
            **{
                f"{kind}_ratio": report.figures[f"{kind}_p95_beside_ms"]
                / report.figures[f"{kind}_p95_alone_ms"],
                f"{kind}_max_ms": max(max(each[kind]) for each in found["beside"]),
            }
        )
    return _picture(found)


def _measure(url: str, tenants: Tenants, scale: Scale, *, is_attacked: bool) -> Latencies:
    seconds = scale.seconds(_SECONDS)
    if not is_attacked:
        return probe(url, tenants.keys[_LIGHT], seconds)
    with child("ops.bench.load.hostile", url, tenants.keys[_HOSTILE]) as hostile:
        hostile.receive()
        clock.sleep(_WARM_UP_S)
        found = probe(url, tenants.keys[_LIGHT], seconds)
        hostile.end_input()
        say(f"the other tenant's requests: {hostile.receive()}")
    return found


def _picture(found: Mapping[str, Sequence[Latencies]]) -> Any:
    figure, axes = picture(len(KINDS), 14)
    for kind, each in zip(KINDS, axes, strict=True):
        sides = {side: np.concatenate([run[kind] for run in runs]) for side, runs in found.items()}
        distributions(each, sides, kind)
        each.set_xscale("log")
    return figure
