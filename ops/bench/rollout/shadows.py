"""Cost of copies for a shadow: the p99 of calls with ten percent of them copied, beside none, in
alternating rounds with the same arrivals."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from api.gateway.routing.shadow import counts_key
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Load, drive
from ops.bench.results.report import Report
from ops.bench.results.statistics import Column, interval
from ops.bench.rollout.versions import NAME, Target, Version, target_of

ASKED = ("shadow_p99_cost <= 0.01",)

_PERCENT = 10
# So few that most copies find no other call waiting, before which they would be shed.
_PER_S, _WARM_UP_S, _SECONDS, _ROUNDS = 50.0, 2.0, 20.0, 12


def measure(report: Report, scale: Scale) -> None:
    """Measures twelve rounds; which side is first alternates."""
    p99_ms: Mapping[int, list[float]] = {0: [], _PERCENT: []}
    with target_of(Version("1"), Version("2")) as target:
        for number in range(int(scale.seconds(_ROUNDS))):
            for percent in (0, _PERCENT) if number % 2 else (_PERCENT, 0):
                ms = _p99_ms(target, percent, scale.seconds(_SECONDS), number)
                p99_ms[percent].append(ms)
        copies = _copies(target)
    without, beside = (np.array(p99_ms[percent]) for percent in (0, _PERCENT))
    low, high = interval(_cost, without, beside)
    report.add(
        shadow_p99_cost=_cost(without, beside),
        shadow_p99_cost_low=low,
        shadow_p99_cost_high=high,
        without_shadow_p99_ms=float(without.mean()),
        **{f"copies_{outcome}": count for outcome, count in copies.items()},
    )


def _cost(without: Column, beside: Column) -> float:
    """Returns the growth of the mean of the rounds' p99, as a share."""
    return float(beside.mean() / without.mean() - 1)


def _p99_ms(target: Target, percent: int, seconds: float, seed: int) -> float:
    shadow = {"version": "2", "percent": percent} if percent else None
    route = {"splits": [{"version": "1", "percent": 100}], "shadow": shadow}
    target.ask("PUT", f"/admin/models/{NAME}/routes/*", route)
    due_s = poisson(_PER_S, _WARM_UP_S + seconds, seed)  # routes are followed in the warm-up
    bodies = [json.dumps({"model": NAME, "input": f"text {n}"}) for n in range(100)]
    calls = drive(Load(f"{target.fleet.urls[0]}/infer", due_s, bodies)).since(_WARM_UP_S)
    say(f"{percent} percent copied: {calls.all_right()}")
    return calls.percentiles(99)[0]


def _copies(target: Target) -> dict[str, int]:
    """Returns how many copies ended how."""
    counts: Any = target.fleet.redis.hgetall(counts_key(f"{NAME}@2"))
    return {name.decode().split()[1]: int(count) for name, count in counts.items()}
