"""A whole simulation, from its arrivals to its result."""

from collections.abc import Sequence
from random import Random

from jobs.calls.memory import MemoryLanes
from jobs.models.model import Model
from workers.simulation.costs import LaunchTimes, Overheads
from workers.simulation.event_loop import BEGINS_S, EventLoop
from workers.simulation.gateway import Gateway
from workers.simulation.job import Job
from workers.simulation.replica import Replica, Stage
from workers.simulation.result import Result
from workers.simulation.wakeups import WakeupList

TIMEOUT_MS = 10_000  # of a call that names none
MOST_WAITING = 2000  # calls of one model, unless it is configured


def simulate(
    model: Model,
    replicas: int,
    arrivals: Sequence[tuple[float, int]],
    times: LaunchTimes,
    *,
    overheads: Overheads | None = None,
    job_sizes: Sequence[int] = (),
    lasts_s: float = 0.0,
    timeout_ms: int = TIMEOUT_MS,
    most_waiting: int = MOST_WAITING,
    seed: int = 0,
) -> Result:
    """Replays arrivals (seconds since the beginning, size) against so many replicas, until every
    call has ended and at least `lasts_s` are over. job_sizes: of the items of a job that always has
    more; without any there is none. The same seed gives the same result.
    """
    agenda = EventLoop()
    lanes = MemoryLanes(lambda: agenda.now_s * 1000)
    bell = WakeupList(lanes)
    around = overheads or Overheads()
    stage = Stage(model, agenda, lanes, bell, times, around, Random(f"{seed} launches"))
    gateway = Gateway(model, agenda, lanes, arrivals, around, timeout_ms, most_waiting, bell.answer)
    job = Job(model, job_sizes, Random(f"{seed} items")) if job_sizes else None
    for number in range(replicas):
        Replica(number, stage, gateway, job).start()
    gateway.start()
    until_s = BEGINS_S + lasts_s
    agenda.at(until_s, lambda: None)
    agenda.run(lambda: gateway.over and agenda.now_s >= until_s)
    return Result(
        calls=gateway.ended,
        launches=stage.launches,
        replicas=replicas,
        slots=replicas * model.limits.in_flight,
        target_s=model.target_ms / 1000,
        lasted_s=agenda.now_s - BEGINS_S,
        looks=stage.looks,
        lost_tickets=stage.lost_tickets,
    )
