"""`millrace bench spacing`: how long should a call wait for others? Four answers, simulated.

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
from ops.bench.results.report import Report
from workers.scheduler.cost import LaunchSize
from workers.scheduler.latency import LatencyModel
from workers.scheduler.policy import Wait, decide
from workers.scheduler.snapshot import LaneView, PoolView, Rules

LAUNCH_S, ROWS = 0.1, 100
_CALLS = 6000
_JITTER = 0.02  # launches take that share more or less
_RATES = (5, 30, 100, 300, 1000, 3000)
_LINGERS_S = (0.003, 0.005, 0.0075, 0.01, 0.012, 0.014, 0.0167, 0.02)
_RULES = Rules(Limits(max_batch=ROWS), target_s=0.25)


@dataclass(frozen=True, slots=True)
class Moment:
    """What a policy sees: now, when the pool launched last, when the first of the other slots is
    free, and when the calls that wait came."""

    now_s: float
    launched_s: float
    other_free_s: float
    waiting: Sequence[float]
    slots: int
    rate: float


Policy = Callable[[Moment], float]
"""The time from when on an idle slot launches."""


def greedy(moment: Moment) -> float:
    return moment.now_s


def pace(moment: Moment) -> float:
    return moment.launched_s + LAUNCH_S / moment.slots


def linger(seconds: float) -> Policy:
    return lambda moment: moment.waiting[0] + seconds


def ours() -> Policy:
    latency = LatencyModel()
    latency.seed([(LaunchSize.alike(rows, 1), LAUNCH_S) for rows in (1, ROWS)])

    def policy(moment: Moment) -> float:
        view = LaneView(
            "{}/0",
            0,
            calls=len(moment.waiting),
            calls_units=len(moment.waiting),
            calls_due_s=moment.waiting[0] + _RULES.target_s,
        )
        took_s, gap_s = LAUNCH_S, 1 / moment.rate
        pool = PoolView(
            moment.launched_s,
            took_s,
            moment.slots,
            other_free_s=moment.other_free_s,
            called_s=moment.now_s,
            gap_s=gap_s,
        )
        decision = decide(moment.now_s, [view], pool, latency, _RULES)
        return decision.until_s if isinstance(decision, Wait) else moment.now_s

    return policy


def latencies(policy: Policy, rate: float, slots: int, seed: int = 1) -> list[float]:
    """Seconds of each call."""
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
            moment = Moment(now_s, launched_s, other_free_s, waiting, slots, rate)
            launch_s = policy(moment)
            if launch_s <= now_s:
                free_s[idle] = now_s + LAUNCH_S * draw.uniform(1 - _JITTER, 1 + _JITTER)
                found += [free_s[idle] - since_s for since_s in waiting[:ROWS]]
                launched_s, waiting = now_s, waiting[ROWS:]
                continue
        arrival_s = arrivals[n] if n < len(arrivals) else inf
        now_s = min(arrival_s, launch_s) if waiting else arrival_s
    return found


def run() -> None:
    """Prints p95 and p99 in ms by rate."""
    report = Report("spacing", {})
    for slots in (2, 6):
        click.echo(f"\n{slots} slots, p95 / p99 ms", err=True)
        for rate in _RATES:
            fixed = min((_percentiles(linger(s), rate, slots), s) for s in _LINGERS_S)
            rows = {
                "greedy": _percentiles(greedy, rate, slots),
                f"best linger ({fixed[1] * 1000:g} ms)": fixed[0],
                "pace": _percentiles(pace, rate, slots),
                "ours": _percentiles(ours(), rate, slots),
            }
            shown = "  ".join(f"{name} {p95:.1f} / {p99:.1f}" for name, (p95, p99) in rows.items())
            say(f"{rate:>5}/s  {shown}")
            for name in ("greedy", "pace", "ours"):
                report.figures[f"{name}_{slots}_{rate}_p95_ms"] = round(rows[name][0], 1)
    report.finish()


def _percentiles(policy: Policy, rate: float, slots: int) -> tuple[float, float]:
    p95, p99 = np.percentile(latencies(policy, rate, slots), [95, 99]) * 1000
    return float(p95), float(p99)
