"""Verbs of a job: cancel, pause, resume, retry, expire, delete.

Another tenant's job is not found; a keeper works for EVERYBODY. Each verb takes the job's advisory
lock, then locks slices, then the job; each returns the job's former state, and does nothing in a
state that it doesn't fit. Verbs that end items end some in each transaction: cancel and expire
begin here, and are continued until nothing is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import bindparam, case, exists, func, select, text, update
from sqlalchemy import delete as delete_from

from jobs.errors import Conflict, NotFound
from jobs.states import TERMINAL, TRANSITIONS, JobState
from jobs.store import queries
from jobs.store.db import Tx, disable_statement_timeout, lock, notify_work
from jobs.store.jobs import deletion, transfers
from jobs.store.queue.finish import OUTPUT_BYTES, close_finished_jobs, close_unread, end_slices
from jobs.store.tables import attempts, jobs, results, slices
from jobs.store.tenancy import EVERYBODY

_s, _its = slices.c, slices.c.job_id == bindparam("job")
_its_job = jobs.c.id == bindparam("job")
_by_start = select(_s.start).where(_its).order_by(_s.start).with_for_update()
_is_open = text("state <> 'done'")  # as the index says it: a parameter may not match
_LOCK_OPEN = _by_start.add_columns(_s.state).where(_is_open)
_LOCK_SOME = _by_start.where(
    _is_open, _s.state.in_(bindparam("states", expanding=True))
).limit(bindparam("most"))  # fmt: skip
_MOVE = update(slices).where(_its, _s.state == bindparam("from")).values(state=bindparam("to"))
_SET_STATE = update(jobs).where(_its_job).values(state=bindparam("to"))
_SET_CANCELLING = update(jobs).where(_its_job).values(state="cancelling", cancelling_at=func.now())
_RESUME = update(jobs).where(_its_job).values(
    state=case((jobs.c.started_at.is_(None), "queued"), else_="running")
)  # fmt: skip
_MOST_SLICES = 100  # of one transaction that ends them


@dataclass(frozen=True, slots=True)
class _Locked:
    """A job that the transaction has locked."""

    state: JobState  #: its state
    total: int  #: number of items; 0: they were never read
    items_pruned: bool  #: its items are past their retention
    results_pruned: bool  #: its results are past their retention
    manifest: str | None  #: JSON object; what was written to its target


_JOB = select(*queries.columns(_Locked, jobs)).where(_its_job).with_for_update()


def _lock_job(tx: Tx, job: UUID, tenant: str) -> _Locked:
    row = queries.one(tx, _Locked, _JOB.where(queries.is_own_or_all(jobs, tenant)), {"job": job})
    if row is None:
        raise NotFound("the job was deleted meanwhile")
    return row


def _alone(tx: Tx, job: UUID) -> None:
    """Makes verbs of one job run one after the other: what one saw holds until it commits.

    Claims and settlements need not wait for it; they only lock slices, then the job.
    """
    lock(tx, str(job))


def _lock(tx: Tx, job: UUID, tenant: str) -> tuple[Sequence[tuple[int, str]], JobState]:
    _alone(tx, job)
    open_slices = [(row[0], row[1]) for row in tx.execute(_LOCK_OPEN, {"job": job})]
    return open_slices, _lock_job(tx, job, tenant).state


def _lock_some(
    tx: Tx, job: UUID, tenant: str, *states: str
) -> tuple[Sequence[tuple[UUID, int]], JobState]:
    _alone(tx, job)
    values = {"job": job, "states": list(states), "most": _MOST_SLICES}
    some = [(job, start) for start in tx.scalars(_LOCK_SOME, values)]
    return some, _lock_job(tx, job, tenant).state


def cancel(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> str:
    """Cancels a job: nothing more of it is claimed, and what waits ends.

    Some of it ends here, the rest by `end_cancelled`. A slice that runs ends at its next launch
    boundary, or with its lease.
    """
    waiting, before = _lock(tx, job, tenant)
    if before == "validating":
        close_unread(tx, job, "cancelled")
    elif "cancelling" in TRANSITIONS[before]:
        tx.execute(_SET_CANCELLING, {"job": job})
        end_slices(tx, [(job, start) for start, state in waiting if state != "leased"], "cancelled")
        close_finished_jobs(tx, [job])
    return before


def end_cancelled(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> int:
    """Ends some more of what waits in a cancelled job; returns 0 once nothing waits."""
    some, before = _lock_some(tx, job, tenant, "ready", "held")
    if before != "cancelling":
        return 0
    end_slices(tx, some, "cancelled")
    close_finished_jobs(tx, [job])
    return len(some)


def unended_cancelled(tx: Tx) -> Sequence[UUID]:
    """Returns cancelled jobs in which items still wait for their end."""
    waits = exists().where(_s.job_id == jobs.c.id, _s.state.in_(("ready", "held")))
    found = select(jobs.c.id).where(jobs.c.state == "cancelling", waits)
    return tx.scalars(found.order_by(jobs.c.id).limit(100)).all()


def pause(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> str:
    """Pauses a job: nothing more of it is claimed, and what runs finishes its launch.

    Raises Conflict where its items are still to be read.
    """
    _, before = _lock(tx, job, tenant)
    if before == "validating":
        raise Conflict("its input is still being read; pause it once it is queued, or cancel it")
    if "paused" in TRANSITIONS[before]:
        tx.execute(_MOVE, {"job": job, "from": "ready", "to": "held"})
        tx.execute(_SET_STATE, {"job": job, "to": "paused"})
    return before


def resume(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> str:
    """Makes a paused job claimable again."""
    _, before = _lock(tx, job, tenant)
    if before == "paused":
        tx.execute(_MOVE, {"job": job, "from": "held", "to": "ready"})
        tx.execute(_RESUME, {"job": job})
        notify_work(tx)
    return before


# The steps of a retry, in the order of the locks: slices with anything that did not succeed, then
# the job.
_is_unsuccessful = _s.n_failed + _s.n_cancelled + _s.n_expired > 0
_LOCK_UNSUCCESSFUL = _by_start.where(_is_unsuccessful)
ARCHIVED_BYTES = 100
"""Counted as stored for an archived result, besides its output and error: it may have neither."""

# Moves results that did not succeed to the archive, and counts their size. Written out: it takes
# their columns as they are, whatever a later version adds.
_ARCHIVE = text(f"""
    WITH moved AS (DELETE FROM results WHERE job_id = :job AND outcome <> 'succeeded' RETURNING *),
    archived AS (
        INSERT INTO results_archive
        SELECT jobs.generation, moved.* FROM moved JOIN jobs ON jobs.id = moved.job_id
    )
    UPDATE jobs SET archived_bytes = archived_bytes + size.moved + size.added,
                    output_bytes = output_bytes + size.added
    FROM (SELECT {OUTPUT_BYTES} AS moved, {ARCHIVED_BYTES} * count(*) AS added FROM moved r) AS size
    WHERE id = :job
""")
# Deletes the attempts of items without a result by their own key.
_DELETE_ATTEMPTS = delete_from(attempts).where(
    attempts.c.job_id == bindparam("job"),
    ~exists().where(results.c.job_id == bindparam("job"), results.c.seq == attempts.c.seq),
)
_REVIVE_SLICES = update(slices).where(_its, _is_unsuccessful).values(
    state="ready", not_before=func.now(), deaths=0, suspect=False, retrying=False,
    finished_at=None, n_failed=0, n_cancelled=0, n_expired=0,
)  # fmt: skip
_REVIVE_JOB = update(jobs).where(_its_job).values(
    state="queued", generation=jobs.c.generation + 1, started_at=None, finished_at=None,
    expires_at=queries.in_s(jobs.c.expires_in_s), error=None, manifest=None,
    queued_at=func.now(), cancelling_at=None, written_at=None,
)  # fmt: skip


def retry(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> str:
    """Starts a new generation of an ended job: what did not succeed runs again.

    Its former results are archived. A job whose items were never read is imported again; one that
    succeeded and could not be written is exported again; any other that succeeded stays. Raises
    Conflict where items or results are pruned.
    """
    disable_statement_timeout(tx)
    _alone(tx, job)
    unsuccessful = tx.execute(_LOCK_UNSUCCESSFUL, {"job": job}).all()
    row = _lock_job(tx, job, tenant)
    before = row.state
    if before not in TERMINAL:
        return before
    unread = not row.total
    if (unread or unsuccessful) and (row.items_pruned or row.results_pruned):
        raise Conflict("its items were removed at the end of their retention; submit it anew")
    if unread:
        transfers.restart_import(tx, job)
    elif unsuccessful:
        transfers.delete(tx, [job])
        for step in (_ARCHIVE, _DELETE_ATTEMPTS, _REVIVE_SLICES, _REVIVE_JOB):
            tx.execute(step, {"job": job})
        notify_work(tx)
    elif transfers.export_failed(row.manifest) and not row.results_pruned:
        transfers.restart_export(tx, job)
    return before


def expired(tx: Tx) -> Sequence[UUID]:
    """Returns open jobs whose time to live is over."""
    found = select(jobs.c.id).where(jobs.c.finished_at.is_(None), jobs.c.expires_at < func.now())
    return tx.scalars(found.order_by(jobs.c.expires_at).limit(100)).all()


def expire(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> None:
    """Ends some items of an expired job, leased ones included; partial results are kept.

    `expired` returns the job until nothing is left of it. What is claimed until then runs, and
    counts if it settles.
    """
    some, before = _lock_some(tx, job, tenant, "ready", "held", "leased")
    if before == "validating":
        close_unread(tx, job, "expired")
    elif before not in TERMINAL:
        end_slices(tx, some, "cancelled" if before == "cancelling" else "expired")
        close_finished_jobs(tx, [job])


def delete(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> str:
    """Deletes an ended job; the keeper erases its rows and payloads (jobs/store/jobs/deletion.py).

    Raises Conflict while it is open.
    """
    disable_statement_timeout(tx)
    _alone(tx, job)
    tx.execute(_by_start, {"job": job})
    before = _lock_job(tx, job, tenant).state
    if before not in TERMINAL:
        raise Conflict(f"the job is {before}; cancel it first, and delete it when it has ended")
    deletion.enqueue(tx, [job])
    deletion.delete_jobs(tx, [job])
    return before
