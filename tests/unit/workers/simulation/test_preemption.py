"""Calls beside a job on a device whose launches grow with their size."""

from functools import cache
from random import Random

import pytest

from jobs.models.builtin_models import SAMPLES
from tests.unit.workers.simulation.made import poisson
from workers.simulation.costs import LaunchTimes, Overheads
from workers.simulation.result import Result, quantile
from workers.simulation.run import simulate

pytestmark = pytest.mark.heavy

MINILM = SAMPLES.resolve("minilm")
#: minilm on two cores: 17 ms for a text of 60 tokens, and launches slow each other.
TIMES = LaunchTimes(
    0.004, unit_s=0.00022, ratios=(0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2), slowdown=0.15
)
AROUND = Overheads(call_s=0.004, launch_s=0.003)
PER_S, LASTS_S = 64, 25.0  # half of what the device can do
SIZES = [20 + size % 100 for size in range(0, 700, 7)]


def simulated(*, calls: bool, job: bool, preempts: bool = True) -> Result:
    sizes = Random(2)
    arrivals = [(at_s, sizes.choice(SIZES)) for at_s, _ in poisson(PER_S, LASTS_S)]
    more = {"job_sizes": SIZES if job else (), "lasts_s": LASTS_S, "preempts": preempts}
    return simulate(MINILM, 1, arrivals if calls else [], TIMES, overheads=AROUND, **more)


@cache
def beside() -> Result:
    return simulated(calls=True, job=True)


def test_a_job_hardly_slows_calls_that_it_gives_way_to_and_gets_most_of_what_they_leave() -> None:
    calls, job = simulated(calls=True, job=False), simulated(calls=False, job=True)
    assert beside().p(95) < 1.5 * calls.p(95)
    assert beside().miss_share < 0.01
    left = 1 - PER_S / (job.items_run / job.lasted_s)
    assert beside().items_run / job.items_run == pytest.approx(left, rel=0.25)
    without = simulated(calls=True, job=True, preempts=False)
    assert without.p(95) > 1.4 * beside().p(95), "where it does not give way"


def test_the_same_seed_gives_the_same_launches() -> None:
    assert simulated(calls=True, job=True).launches == beside().launches


def test_a_tenants_burst_of_long_texts_hardly_slows_another() -> None:
    draw = Random(3)
    light = [(at_s, draw.randint(20, 48), "light") for at_s, _ in poisson(9, 40.0)]
    burst = [(at_s + n * 0.002, 230, "burst") for at_s in range(0, 40, 4) for n in range(60)]

    def p95(*others: tuple[float, int, str]) -> float:
        calls = sorted([*light, *others])
        found = simulate(MINILM, 1, calls, TIMES, overheads=AROUND, preempts=True).answered
        return quantile(sorted(one.latency_s for one in found if one.tenant == "light"), 0.95)

    assert p95(*burst) < 1.3 * p95()
