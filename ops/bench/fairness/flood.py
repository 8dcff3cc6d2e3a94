"""Nine clients with small jobs and some calls, alone and next to a tenant that floods."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from random import Random

import numpy as np

from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, Load, driver
from ops.bench.load.submissions import await_end, job_ms, submissions
from ops.bench.load.tenants import Tenants
from ops.supervisor.platform import Platform

FLOOD = "flood"
NINE = [f"light-{n}" for n in range(1, 10)]

_JOBS_PER_S, _JOB_ITEMS, _CALLS_PER_S = 1, 20, 5  # of each of the nine
_FLOOD_ITEMS = 100_000  # of a job of the flood
_WARM_UP_S, _SECONDS = 2.0, 12.0


@dataclass(frozen=True, slots=True)
class Flood:
    """Load of the tenant that floods."""

    calls_per_s: float
    #: of at least 8.3 s each on six processes; one more than needed, in case they are slow
    jobs: int


NO_FLOOD = Flood(0, 0)


@dataclass(frozen=True, slots=True)
class Side:
    """Results of the nine."""

    job_ms: Sequence[float]  #: from creation to end
    calls: Calls
    submits: Calls  #: submissions of the jobs


def measure(
    platform: Platform, tenants: Tenants, scale: Scale, seed: int, flood: Flood = NO_FLOOD
) -> Side:
    """Measures one side; the nine do the same on both, call by call."""
    seconds = _WARM_UP_S + scale.seconds(_SECONDS)
    keys = [tenants.keys[name] for name in NINE]
    with (
        driver(_jobs(platform, keys, seconds, seed)) as submits,
        driver(_calls(platform, keys, seconds, seed)) as calls,
        _flooding(platform, tenants, seconds, seed, flood) if flood != NO_FLOOD else nullcontext(),
    ):
        since = tenants.now()
        submits.go()
        calls.go()
        called, posted = calls.calls(), submits.calls()
        until = tenants.now()
        if flood.jobs and not tenants.backlogged([FLOOD]):
            raise BenchError("the flood was over before the nine were")
        await_end(tenants.database, NINE)
        took_ms = job_ms(tenants.database, NINE, since, until)
    if posted.errors or len(took_ms) != len(posted):
        raise BenchError(f"{len(took_ms)} jobs of {len(posted)}: {posted.statuses()}")
    warm = int((posted.due_s < _WARM_UP_S).sum())
    side = Side(took_ms[warm:], called.since(_WARM_UP_S), posted.since(_WARM_UP_S))
    p50, p95 = np.percentile(side.job_ms, [50, 95])
    say(f"beside {flood.calls_per_s:.0f} calls/s and {flood.jobs} jobs: {len(side.job_ms)} jobs "
        f"p50 {p50:.0f}, p95 {p95:.0f} ms; calls {side.calls}")  # fmt: skip
    return side


@contextmanager
def _flooding(
    platform: Platform, tenants: Tenants, seconds: float, seed: int, flood: Flood
) -> Iterator[None]:
    due_s = poisson(flood.calls_per_s, 2 * seconds, 3 * seed + 2)
    load = workloads.batchstring(platform, due_s, [tenants.keys[FLOOD]])
    with closing(tenants.client(FLOOD)) as client, driver(load) as running:
        jobs = [
            client.post("batchstring", (f"flood {n}" for n in range(_FLOOD_ITEMS)))
            for _ in range(flood.jobs)
        ]
        running.go()
        yield
        running.stop()
        calls = running.calls()
        say(f"the flood's calls: {calls.statuses()} in {np.nanmax(calls.ended_s):.1f} s")
        for job in jobs:
            client.cancel(job)
    await_end(tenants.database, [FLOOD])


def _jobs(platform: Platform, keys: Sequence[str], seconds: float, seed: int) -> Load:
    """Submissions of each of the nine in a Poisson process.

    They equal one process of all nine, each of whose arrivals is a random one's.
    """
    due_s = poisson(_JOBS_PER_S * len(keys), seconds, 3 * seed)
    jobs = [[f"light {job} {n}" for n in range(_JOB_ITEMS)] for job in range(len(due_s))]
    each = Random(3 * seed).choices(keys, k=len(due_s))
    return submissions(platform, "batchstring", due_s, jobs, each)


def _calls(platform: Platform, keys: Sequence[str], seconds: float, seed: int) -> Load:
    due_s = poisson(_CALLS_PER_S * len(keys), seconds, 3 * seed + 1)
    return workloads.batchstring(platform, due_s, Random(3 * seed + 1).choices(keys, k=len(due_s)))
