"""Whole simulation, from its arrivals to its result."""

from collections.abc import Sequence
from random import Random

from jobs.calls.memory import MemoryLanes
from jobs.models.model import Model
from workers.simulation.costs import LaunchTimes, Overheads
from workers.simulation.event_loop import BEGINS_S, EventLoop
from workers.simulation.gateway import Arrival, Gateway
from workers.simulation.job import Job
from workers.simulation.replica import Replica, Stage, WakeupList
from workers.simulation.result import Result

TIMEOUT_MS = 10_000  # of a call without one
MOST_WAITING = 2000  # calls of one model


def simulate(
    model: Model,
    replicas: int,
    arrivals: Sequence[Arrival],
    times: LaunchTimes | Sequence[LaunchTimes],
    *,
    overheads: Overheads | None = None,
    job_sizes: Sequence[int] = (),
    lasts_s: float = 0.0,
    timeout_ms: int = TIMEOUT_MS,
    most_waiting: int = MOST_WAITING,
    seed: int = 0,
    preempts: bool = False,
    alike: bool = False,
) -> Result:
    """Replays arrivals until every call has ended and at least
    `lasts_s` are over.

    times: of all replicas, or of each. `job_sizes` are the sizes of a job's items, of which there
    are always more; without any there is no job. The same seed gives the same result. preempts:
    launches of items give way to those of calls. alike: no replica tells how fast it is: the
    last announced profile counts for all.
    """
    loop = EventLoop()
    lanes = MemoryLanes(lambda: loop.now_s * 1000)
    wakeups = WakeupList(lanes)
    costs = overheads or Overheads()
    stage = Stage(model, loop, lanes, wakeups, costs, Random(f"{seed} launches"), preempts, alike)
    gateway = Gateway(model, loop, lanes, arrivals, costs, timeout_ms, most_waiting, wakeups.notify)
    job = Job(model, job_sizes, Random(f"{seed} items")) if job_sizes else None
    its = [times] * replicas if isinstance(times, LaunchTimes) else times
    for number in range(replicas):
        Replica(number, its[number], stage, gateway, job).start()
    gateway.start()
    until_s = BEGINS_S + lasts_s
    loop.at(until_s, lambda: None)
    loop.run(lambda: gateway.over and loop.now_s >= until_s)
    return Result(
        calls=gateway.ended,
        launches=stage.launches,
        replicas=replicas,
        slots=replicas * model.limits.in_flight,
        target_s=model.target_ms / 1000,
        lasted_s=loop.now_s - BEGINS_S,
        looks=stage.looks,
        lost_tickets=stage.lost_tickets,
    )
