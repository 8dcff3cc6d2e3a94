"""`millrace bench spacing`: four policies for how long a call waits for others, simulated.

Slots that take 100 ms for up to 100 rows, Poisson arrivals, one lane: greedy (an idle slot launches
at once), linger (the first call waits for a fixed time), pace (launches are at least t/N apart, as
in even spacing) and ours (workers/scheduler/policy.py). No HTTP, no Redis: the policy alone.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import click
import numpy as np

from jobs.models.model import Limits
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report, scenario
from workers.scheduler.cost import LaunchSize
from workers.scheduler.latency import LatencyModel
from workers.scheduler.policy import LaunchPolicy, Wait
from workers.scheduler.snapshot import LaneView, PoolView, Rules

LAUNCH_S, ROWS = 0.1, 100
_CALLS = 6000
_JITTER = 0.02  # relative, of a launch's time
_RATES = (5, 30, 100, 300, 1000, 3000)
_LINGERS_S = (0.003, 0.005, 0.0075, 0.01, 0.012, 0.014, 0.0167, 0.02)
_RULES = Rules(Limits(max_batch=ROWS), target_s=0.25)


@dataclass(frozen=True, slots=True)
class Moment:
    """State that a policy decides on."""

    now_s: float
    launched_s: float  #: last launch of the pool
    other_free_s: float  #: first of the other slots to be free
    waiting: Sequence[float]  #: arrivals of the calls that wait, s
    slots: int
    rate: float  #: calls a second


#: Time from which on an idle slot launches, s.
Policy = Callable[[Moment], float]


def linger(seconds: float) -> Policy:
    """Policy under which the first call waits for a fixed time."""
    return lambda moment: moment.waiting[0] + seconds


def ours() -> Policy:
    """Policy of the workers."""
    latency = LatencyModel()
    latency.seed([(LaunchSize.alike(rows, 1), LAUNCH_S) for rows in (1, ROWS)])

    def policy(moment: Moment) -> float:
        """Decision of the scheduler."""
        calls, due_s = len(moment.waiting), moment.waiting[0] + _RULES.target_s
        view = LaneView("{}/0", 0, calls=calls, calls_units=calls, calls_due_s=due_s)
        pool = PoolView(
            *(moment.launched_s, LAUNCH_S, moment.slots),
            other_free_s=moment.other_free_s,
            called_s=moment.now_s,
            gap_s=1 / moment.rate,
        )
        decision = LaunchPolicy(latency, _RULES).decide(moment.now_s, [view], pool)
        return decision.until_s if isinstance(decision, Wait) else moment.now_s

    return policy


_POLICIES: dict[str, Policy] = {
    "greedy": lambda moment: moment.now_s,
    "pace": lambda moment: moment.launched_s + LAUNCH_S / moment.slots,
    "ours": ours(),
}


def latencies(policy: Policy, rate: float, slots: int, seed: int = 1) -> list[float]:
    """Simulated latency of each call, s."""
    draw = random.Random(seed)
    arrivals = list(np.cumsum([draw.expovariate(rate) for _ in range(_CALLS)]))
    free_s = [0.0] * slots
    found: list[float] = []
    waiting: list[float] = []
    launched_s, now_s, n = -inf, 0.0, 0
    while n < len(arrivals) or waiting:
        while n < len(arrivals) and arrivals[n] <= now_s:
            waiting.append(arrivals[n])
            n += 1
        idle = min(range(slots), key=lambda slot: free_s[slot])
        launch_s = free_s[idle]
        if waiting and launch_s <= now_s:
            other_free_s = sorted(free_s)[1] if slots > 1 else inf
            launch_s = policy(Moment(now_s, launched_s, other_free_s, waiting, slots, rate))
            if launch_s <= now_s:
                free_s[idle] = now_s + LAUNCH_S * draw.uniform(1 - _JITTER, 1 + _JITTER)
                found += [free_s[idle] - since_s for since_s in waiting[:ROWS]]
                launched_s, waiting = now_s, waiting[ROWS:]
                continue
        arrival_s = arrivals[n] if n < len(arrivals) else inf
        now_s = min(arrival_s, launch_s) if waiting else arrival_s
    return found


@scenario("spacing")
def run(report: Report, scale: Scale) -> None:
    """Prints p95 and p99 in ms by rate."""
    for slots in (2, 6):
        click.echo(f"\n{slots} slots, p95 / p99 ms", err=True)
        for rate in _RATES:
            fixed = min((_percentiles(linger(s), rate, slots), s) for s in _LINGERS_S)
            rows = {name: _percentiles(each, rate, slots) for name, each in _POLICIES.items()}
            for name, (p95, _) in rows.items():
                report.figures[f"{name}_{slots}_{rate}_p95_ms"] = round(p95, 1)
            rows[f"best linger ({fixed[1] * 1000:g} ms)"] = fixed[0]
            shown = "  ".join(f"{name} {p95:.1f} / {p99:.1f}" for name, (p95, p99) in rows.items())
            say(f"{rate:>5}/s  {shown}")


def _percentiles(policy: Policy, rate: float, slots: int) -> tuple[float, float]:
    p95, p99 = np.percentile(latencies(policy, rate, slots), [95, 99]) * 1000
    return float(p95), float(p99)
