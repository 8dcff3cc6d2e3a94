"""`millrace bench flood`: nine small tenants beside calls of one tenant at two and five times what
the platform carries."""

from collections.abc import Sequence

import numpy as np

from ops.bench.fairness.flood import FLOOD, NINE, NO_FLOOD, Flood, Side, measure
from ops.bench.harness.errors import BenchError
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import own_platform, say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import drive
from ops.bench.load.tenants import tenants_of
from ops.bench.results.report import Report, scenario
from ops.bench.results.statistics import highest
from ops.supervisor.platform import Platform

FACTORS = (2, 5)  #: Calls of the flood, in multiples of what is carried.
_WORKERS, _TARGET_MS = 6, 200
_STEPS, _FIRST_STEP, _STEP_S, _WARM_UP_S = range(250, 5001, 250), 2000, 5.0, 1.0


@scenario(
    "flood",
    *(f"light_{kind}_ratio_{factor}x <= 2" for kind in ("call", "job") for factor in FACTORS),
    "light_calls_failed <= 0",
)
def run(report: Report, scale: Scale) -> None:
    """Finds what is carried; then measures the nine alone and beside each flood, in turn. The
    generator of a flood shares the cores with the platform."""
    with (
        own_platform(_WORKERS, models_file(sample("batchstring"))) as platform,
        tenants_of(platform, [FLOOD, *NINE]) as tenants,
    ):
        key = tenants.keys[FLOOD]
        carried = highest(lambda rate: _carries(platform, scale, key, rate), _STEPS, _FIRST_STEP)
        if not carried:
            raise BenchError(f"not even {_STEPS[0]} calls/s are answered in {_TARGET_MS} ms")
        report.add(carried_per_s=carried)
        floods = [NO_FLOOD, *(Flood(factor * carried, 0) for factor in FACTORS)]
        rounds = [
            [measure(platform, tenants, scale, seed, flood) for flood in floods]
            for seed in range(scale.rounds)
        ]
    alone, *beside = zip(*rounds, strict=True)
    _add(report, "alone", alone)
    for factor, sides in zip(FACTORS, beside, strict=True):
        _add(report, f"{factor}x", sides)
        for kind in ("call", "job"):
            p95, before = (f"light_{kind}_p95_{name}_ms" for name in (f"{factor}x", "alone"))
            ratio = report.figures[p95] / report.figures[before]
            report.add(**{f"light_{kind}_ratio_{factor}x": ratio})
    calls = [side.calls for sides in rounds for side in sides]
    report.add(
        light_calls_failed=sum(each.failed for each in calls),
        light_calls_refused=int(sum(each.refused.sum() for each in calls)),
    )


def _carries(platform: Platform, scale: Scale, key: str, rate: int) -> bool:
    due_s = poisson(rate, _WARM_UP_S + scale.seconds(_STEP_S), rate)
    calls = drive(workloads.batchstring(platform, due_s, [key]))
    say(f"{rate}/s: {calls}")
    warm = calls.since(_WARM_UP_S)
    return not warm.errors and warm.percentiles(95)[0] < _TARGET_MS


def _add(report: Report, name: str, sides: Sequence[Side]) -> None:
    """Adds the median of the rounds' p95 of calls and jobs."""
    calls = [side.calls.percentiles(95)[0] for side in sides]
    jobs = [float(np.percentile(side.job_ms, 95)) for side in sides]
    report.spread(**{f"light_call_p95_{name}_ms": calls, f"light_job_p95_{name}_ms": jobs})
