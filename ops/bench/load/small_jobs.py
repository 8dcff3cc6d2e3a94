"""Many jobs of one item, from many clients, from the first byte posted to the last job's end."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from signal import SIGTERM
from typing import Any

from sqlalchemy import Engine, text

from jobs import clock, ids
from jobs.store import db
from ops.bench.harness.platform import BenchError, say
from ops.processes.children import die_with_parent
from ops.supervisor.platform import Platform

_LOOK_S = 0.05
_STALLED_S = 60.0  # the most that all small jobs may take once the last one is posted


@dataclass(frozen=True, slots=True)
class SmallJobs:
    """What they took. mean_launch: entries; client_cpu_share: 0..1 of a core."""

    per_s: float
    posted_per_s: float
    client_cpu_share: float
    launches: int
    mean_launch: float


def run(platform: Platform, model: str, jobs: int, clients: int) -> SmallJobs:
    """model: `echo` or `batchstring`. Raises BenchError unless every job has the right output."""
    say(f"{model}: {jobs:,} jobs from {clients} clients")
    database = db.connect(platform.settings.database_url, pool_size=1)
    try:
        posted = _crowd(platform, model, jobs, clients)
        ended_s = all_ended(database)
        launches, mean_launch = check(database, posted["jobs"], upper=model == "batchstring")
    finally:
        database.dispose()
    return SmallJobs(
        per_s=jobs / (ended_s - posted["started_s"]),
        posted_per_s=jobs / posted["posted_s"],
        client_cpu_share=posted["cpu_s"] / posted["posted_s"],
        launches=launches,
        mean_launch=mean_launch,
    )


def _crowd(platform: Platform, model: str, jobs: int, clients: int) -> Any:
    arguments = [platform.url, model, str(jobs), str(clients)]
    command = die_with_parent(
        [sys.executable, "-m", "ops.bench.load.concurrent_clients", *arguments], SIGTERM
    )
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    if done.returncode:
        raise BenchError("the clients failed; see above")
    return json.loads(done.stdout)


_OPEN_JOBS = text("SELECT count(*) FROM jobs WHERE finished_at IS NULL")


def all_ended(database: Engine) -> float:
    """When no job is open any more, monotonic seconds."""
    deadline_s = clock.monotonic() + _STALLED_S
    while clock.monotonic() < deadline_s:
        with database.connect() as tx:
            if not tx.scalar(_OPEN_JOBS):
                return clock.monotonic()
        clock.sleep(_LOOK_S)
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


def check(database: Engine, jobs: Sequence[str], *, upper: bool = False) -> tuple[int, float]:
    """(launches that these jobs were in, their mean size); their one output is their input, or
    that in capitals."""
    found = [ids.parse("job", job) for job in jobs]
    with database.connect() as tx:
        row = tx.execute(_LAUNCHES, {"jobs": found, "upper": upper}).one()
    if row.right != len(jobs):
        raise BenchError(f"{row.right} of {len(jobs)} small jobs have the right output")
    return row.launches, float(row.mean_size)
