"""Jobs of one item from concurrent clients."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Engine, text

from jobs import clock, ids
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import database_of, say
from ops.bench.load.open_loop import Load, drive
from ops.supervisor.platform import Platform

_POLL_S = 0.05
_STALLED_S = 60.0  # limit for all jobs to end once the last one is posted


@dataclass(frozen=True, slots=True)
class SmallJobs:
    """Figures of a run."""

    per_s: float  #: jobs from the first byte posted to the last job's end
    posted_per_s: float  #: jobs until the last one is stored
    client_cpu_share: float  #: 0..1 of a core
    launches: int
    mean_launch: float  #: entries


def posts(platform: Platform, model: str, due_s: Sequence[float], max_in_flight: int) -> Load:
    """Submissions of jobs of one item."""
    items = (f"small job {n}" for n in range(len(due_s)))
    bodies = [json.dumps({"model": model, "items": [item]}) for item in items]
    return Load(f"{platform.url}/jobs", due_s, bodies, max_in_flight=max_in_flight)


def run(platform: Platform, model: str, jobs: int, clients: int) -> SmallJobs:
    """Runs jobs of `echo` or `batchstring`. Raises BenchError where an output is wrong."""
    say(f"{model}: {jobs:,} jobs from {clients} clients")
    posted = drive(posts(platform, model, [0.0] * jobs, clients))
    if posted.errors:
        raise BenchError(f"the api answered {posted.statuses()}")
    with database_of(platform) as database:
        ended_s = all_ended(database)
        launches, mean_launch = check(database, posted.job, upper=model == "batchstring")
    posted_s = float(np.max(posted.ended_s))
    return SmallJobs(
        per_s=jobs / (ended_s - posted.started_s),
        posted_per_s=jobs / posted_s,
        client_cpu_share=posted.cpu_s / posted_s,
        launches=launches,
        mean_launch=mean_launch,
    )


_OPEN_JOBS = text("SELECT count(*) FROM jobs WHERE finished_at IS NULL")


def all_ended(database: Engine) -> float:
    """Monotonic time when no job is open any more. Raises BenchError after a minute."""
    deadline_s = clock.monotonic() + _STALLED_S
    while clock.monotonic() < deadline_s:
        with database.connect() as tx:
            if not tx.scalar(_OPEN_JOBS):
                return clock.monotonic()
        clock.sleep(_POLL_S)
    raise BenchError(f"jobs are still open {_STALLED_S:g} s after the last one was posted")


_LAUNCHES = text("""
    WITH mine AS (
        SELECT r.launch_id, i.input, r.output FROM unnest(CAST(:jobs AS uuid[])) AS m (job_id)
        JOIN jobs j ON j.id = m.job_id AND j.state = 'completed'
        JOIN items i USING (job_id) JOIN results r USING (job_id, seq)
    )
    SELECT (SELECT count(*) FROM mine
            WHERE output = CASE WHEN :upper THEN upper(input) ELSE input END) AS right,
           count(*) AS launches, avg(items + calls) AS mean_size
    FROM launches WHERE id IN (SELECT launch_id FROM mine)
""")


def check(database: Engine, jobs: Iterable[str], *, upper: bool = False) -> tuple[int, float]:
    """Returns (number of launches of these jobs, their mean size).

    Raises BenchError unless each output is its input, or that in upper case.
    """
    found = [ids.parse("job", job) for job in jobs]
    with database.connect() as tx:
        row = tx.execute(_LAUNCHES, {"jobs": found, "upper": upper}).one()
    if row.right != len(found):
        raise BenchError(f"{row.right} of {len(found)} small jobs have the right output")
    return row.launches, float(row.mean_size)
