"""Pools of replicas whose launches take 50 and 250 ms, simulated: calls refused and late,
at shares of what all replicas do in full launches.

Beside them the same pools where no replica tells how fast it is: the last profile counts for all.
`even`: two of each, with a target of 250 ms, which slow ones can't meet, and of 500; `slow`: one
beside five slow ones, at 500 ms. Figures are the same on any machine.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from jobs.models.builtin_models import SAMPLES
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from workers.simulation.costs import LaunchTimes
from workers.simulation.gateway import Arrival
from workers.simulation.result import Result
from workers.simulation.run import simulate

_POOLS = {"even_250": (2, 2, 250), "even_500": (2, 2, 500), "slow_500": (1, 5, 500)}
_LOADS = (0.13, 0.4, 0.65)
ASKED = tuple(
    f"{pool}_{100 * load:.0f}_{what} <= 0.005"
    for pool in _POOLS
    for load in _LOADS
    for what in ("refused", "late")
)
_ROWS = 16  # most of a launch
_JITTER = (0.9, 0.95, 1.0, 1.05, 1.1)
_TIMES = LaunchTimes(0.05, ratios=_JITTER), LaunchTimes(0.25, ratios=_JITTER)
_LASTS_S, _QUICK_S = 60.0, 5.0
_TIMEOUT_MS = 2000


def measure(report: Report, scale: Scale) -> None:
    """Simulates all pools at each load."""
    lasts_s = _QUICK_S if scale.quick else _LASTS_S
    for pool, (fast, slow, target_ms) in _POOLS.items():
        for load in _LOADS:
            own, alike = (
                _simulate(fast, slow, target_ms, load, lasts_s, alike=it) for it in (False, True)
            )
            p95_ms, alike_ms = (result.p(95) * 1000 for result in (own, alike))
            say(f"{pool} at {load:.0%}: p95 {p95_ms:.0f} ms, alike {alike_ms:.0f}")
            report.add(
                f"{pool}_{100 * load:.0f}_",
                refused=own.refused_share, late=own.miss_share,
                alike_refused=alike.refused_share, alike_late=alike.miss_share,
            )  # fmt: skip


def _simulate(
    fast: int, slow: int, target_ms: int, load: float, lasts_s: float, *, alike: bool
) -> Result:
    sample = SAMPLES.resolve("batchstring")
    limits = replace(sample.limits, max_batch=_ROWS)
    model = replace(sample, limits=limits, target_ms=target_ms)
    times = [_TIMES[0]] * fast + [_TIMES[1]] * slow
    per_s = sum(_ROWS / its.fixed_s for its in times)
    calls = _poisson(load * per_s, lasts_s)
    return simulate(model, len(times), calls, times, timeout_ms=_TIMEOUT_MS, alike=alike)


def _poisson(rate_per_s: float, lasts_s: float) -> Sequence[Arrival]:
    random, at_s, arrivals = Random("mixed"), 0.0, list[Arrival]()
    while (at_s := at_s + random.expovariate(rate_per_s)) < lasts_s:
        arrivals.append((at_s, 1))
    return arrivals
