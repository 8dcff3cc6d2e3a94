"""Nine clients with small jobs and some calls, alone and beside a tenant that floods."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random

import numpy as np

from ops.bench.fairness.tenants import Tenants
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, Driver, Load
from ops.supervisor.platform import Platform

FLOOD = "flood"
NINE = [f"light-{n}" for n in range(1, 10)]

_JOBS_PER_S, _JOB_ITEMS, _CALLS_PER_S = 1, 20, 5  # of each of the nine
_FLOOD_ITEMS, _FLOOD_JOBS, _FLOOD_PER_S = 100_000, 2, 500
_WARM_UP_S, _SECONDS = 2.0, 12.0


@dataclass(frozen=True, slots=True)
class Side:
    """What the nine saw: their jobs' times (from creation to end), their calls, and how they
    handed in their jobs."""

    job_ms: Sequence[float]
    calls: Calls
    submits: Calls


def rounds(platform: Platform, tenants: Tenants, effort: Scale) -> list[tuple[Side, Side]]:
    """(alone, with the flood), in turn."""
    return [
        (
            _side(platform, tenants, effort, seed, flooded=False),
            _side(platform, tenants, effort, seed, flooded=True),
        )
        for seed in range(effort.rounds)
    ]


def _side(platform: Platform, tenants: Tenants, effort: Scale, seed: int, *, flooded: bool) -> Side:
    """The same of the nine on both sides, call by call."""
    seconds = _WARM_UP_S + effort.seconds(_SECONDS)
    keys = [tenants.keys[name] for name in NINE]
    with ExitStack() as stack:
        submits, calls = (
            stack.enter_context(Driver(load))
            for load in (
                _jobs(platform, keys, seconds, seed),
                _calls(platform, keys, seconds, seed),
            )
        )
        if flooded:
            stack.enter_context(_flood(platform, tenants, seconds, seed))
        since = tenants.now()
        submits.go()
        calls.go()
        made = calls.calls()
        posted = submits.calls()
        until = tenants.now()
        if flooded and not tenants.backlogged([FLOOD]):
            raise BenchError("the flood was over before the nine were")
        tenants.await_end(NINE)
        found = tenants.job_ms(NINE, since, until)
    if posted.errors or len(found) != len(posted):
        raise BenchError(f"{len(found)} jobs of {len(posted)}: {posted.said()}")
    warm = int((posted.due_s < _WARM_UP_S).sum())
    side = Side(found[warm:], made.since(_WARM_UP_S), posted.since(_WARM_UP_S))
    _tell("with the flood" if flooded else "alone", side)
    return side


@contextmanager
def _flood(platform: Platform, tenants: Tenants, seconds: float, seed: int) -> Iterator[None]:
    """A job that takes 16.7 s at least, one more in case the machine falls behind, and calls."""
    due_s = poisson(_FLOOD_PER_S, 2 * seconds, 3 * seed + 2)
    stream = tenants.stream(FLOOD)
    with Driver(workloads.batchstring(platform, due_s, [tenants.keys[FLOOD]])) as driver:
        jobs = [
            stream.post("batchstring", (f"flood {n}" for n in range(_FLOOD_ITEMS)))
            for _ in range(_FLOOD_JOBS)
        ]
        driver.go()
        yield
        driver.stop()
        calls = driver.calls()
    p50, p95 = calls.percentiles(50, 95)
    say(f"the flood's calls: p50 {p50:.1f}, p95 {p95:.1f} ms; {calls.said()}")
    for job in jobs:
        stream.cancel(job)
    stream.close()
    tenants.await_end([FLOOD])


def _jobs(platform: Platform, keys: Sequence[str], seconds: float, seed: int) -> Load:
    """Each of the nine hands in jobs in a Poisson process of its own: one of all of them, each of
    whose arrivals is anybody's, is the same."""
    due_s = poisson(_JOBS_PER_S * len(keys), seconds, 3 * seed)
    jobs = [[f"light {job} {n}" for n in range(_JOB_ITEMS)] for job in range(len(due_s))]
    bodies = [json.dumps({"model": "batchstring", "items": items}) for items in jobs]
    whose = Random(3 * seed).choices(keys, k=len(due_s))
    return Load(f"{platform.url}/jobs", due_s, bodies, keys=whose)


def _calls(platform: Platform, keys: Sequence[str], seconds: float, seed: int) -> Load:
    due_s = poisson(_CALLS_PER_S * len(keys), seconds, 3 * seed + 1)
    return workloads.batchstring(platform, due_s, Random(3 * seed + 1).choices(keys, k=len(due_s)))


def _tell(name: str, side: Side) -> None:
    jobs_p50, jobs_p95 = np.percentile(side.job_ms, [50, 95])
    p50, p95 = side.calls.percentiles(50, 95)
    wrong = f"; {side.calls.errors} ERRORS: {side.calls.said()}" if side.calls.errors else ""
    say(f"{name}: {len(side.job_ms)} jobs p50 {jobs_p50:.0f}, p95 {jobs_p95:.0f} ms; "
        f"calls p50 {p50:.1f}, p95 {p95:.1f} ms{wrong}")  # fmt: skip
