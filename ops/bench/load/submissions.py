"""Jobs that a load submits, and their rows as the owner of the database reads them."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Engine, text

from jobs import clock, ids
from jobs.store.jobs import detail
from ops.bench.harness.errors import BenchError
from ops.bench.harness.platform import database_of, say, wait_until
from ops.bench.load.open_loop import Load, drive
from ops.supervisor.platform import Platform

_POLL_S = 0.05
_STALLED_S = 120.0  # limit for jobs to end once the last one is posted

_OPEN = text("""
    SELECT count(*) FROM jobs
    WHERE finished_at IS NULL AND (tenant_id = ANY(:tenants) OR cardinality(:tenants) = 0)
""")
_CREATED = text("""
    SELECT id, total, extract(epoch FROM finished_at - created_at)::float8 AS took_s
    FROM jobs
    WHERE tenant_id = ANY(:tenants) AND created_at >= :since AND created_at < :until
    ORDER BY created_at
""")
_RIGHT = text("""
    SELECT count(*) FROM results JOIN items USING (job_id, seq) JOIN jobs ON jobs.id = job_id
    WHERE job_id = ANY(:jobs) AND jobs.state = 'completed'
          AND output = CASE WHEN :upper THEN upper(input) ELSE input END
""")
_LAUNCHES = text("""
    SELECT count(*) AS launches, avg(items + calls) AS mean_size FROM launches
    WHERE id IN (SELECT launch_id FROM results WHERE job_id = ANY(:jobs))
""")


def submissions(
    platform: Platform, model: str, due_s: Sequence[float], jobs: Iterable[Sequence[str]],
    keys: Sequence[str] = (), max_in_flight: int = 0,
) -> Load:  # fmt: skip
    """Load of jobs, each with these items. keys: API key of each; empty: none."""
    bodies = [json.dumps({"model": model, "items": items}) for items in jobs]
    return Load(f"{platform.url}/jobs", due_s, bodies, None, keys, max_in_flight)


def await_end(database: Engine, tenants: Sequence[str] = ()) -> None:
    """Waits until no job of these tenants (empty: of any) is open."""

    def is_over() -> bool:
        """Returns True if none is open."""
        with database.connect() as tx:
            return not tx.scalar(_OPEN, {"tenants": list(tenants)})

    wait_until(is_over, "all jobs have ended", _STALLED_S, _POLL_S)


def job_ids(shown: Iterable[str]) -> list[UUID]:
    """Ids of jobs as the database has them."""
    return [id for job in shown if (id := ids.parse("job", job))]


def check_outputs(
    database: Engine, jobs: Sequence[UUID], items: int, *, upper: bool = False
) -> None:
    """Raises BenchError unless these jobs are complete and each output is its input.

    items: of all of them. upper: outputs are in upper case.
    """
    with database.connect() as tx:
        right = tx.scalar(_RIGHT, {"jobs": jobs, "upper": upper})
    if right != items:
        raise BenchError(f"{right} of {items} items of {len(jobs)} jobs have the right output")


def launches(database: Engine, jobs: Sequence[UUID]) -> tuple[int, float]:
    """Returns (number of launches that these jobs' items were in, their mean size)."""
    with database.connect() as tx:
        row = tx.execute(_LAUNCHES, {"jobs": jobs}).one()
    return row.launches, float(row.mean_size)


def job_ms(
    database: Engine, tenants: Sequence[str], since: datetime, until: datetime
) -> list[float]:
    """Times from creation to end of the tenants' jobs that were created then; all have ended.

    Raises BenchError where an output isn't its input in upper case.
    """
    values: dict[str, Any] = {"tenants": list(tenants), "since": since, "until": until}
    with database.connect() as tx:
        jobs = tx.execute(_CREATED, values).all()
    items = sum(job.total for job in jobs)
    check_outputs(database, [job.id for job in jobs], items, upper=True)
    return [job.took_s * 1000 for job in jobs]


def launch_figures(platform: Platform, job: str) -> detail.LaunchFigures:
    """Sums of the launches that a job's items ended in."""
    with database_of(platform) as database, database.connect() as tx:
        return detail.launch_figures(tx, *job_ids([job]))


def run_small_jobs(platform: Platform, model: str, jobs: int, clients: int) -> dict[str, float]:
    """Runs jobs of one item of `echo` or `batchstring` from concurrent clients; returns figures.

    small_jobs_per_s: from the first byte posted to the last job's end; small_jobs_posted_per_s:
    until the last one is stored. Raises BenchError where an output is wrong.
    """
    say(f"{model}: {jobs:,} jobs from {clients} clients")
    items = ([f"small job {n}"] for n in range(jobs))
    load = submissions(platform, model, [0.0] * jobs, items, max_in_flight=clients)
    posted = drive(load).all_right()
    with database_of(platform) as database:
        await_end(database)
        ended_s = clock.monotonic()
        found = job_ids(posted.job)
        check_outputs(database, found, jobs, upper=model == "batchstring")
        count, mean = launches(database, found)
    posted_s = float(np.max(posted.ended_s))
    return {
        "mean_launch": mean,
        "small_job_launches": count,
        "small_jobs_per_s": jobs / (ended_s - posted.started_s),
        "small_jobs_posted_per_s": jobs / posted_s,
        "client_cpu_share": posted.cpu_s / posted_s,
    }
