"""The verbs of a job: cancel, pause, resume, retry, expire.

Each takes its turn, then locks slices, then the job; each returns the state that the job was in,
and does nothing in one that it doesn't fit.
"""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import text

from jobs.states import TERMINAL, TRANSITIONS, JobState
from jobs.store.db import Tx, notify_work
from jobs.store.endings import close_finished_jobs, end_slices

# Verbs of one job run one after the other: what one saw of its slices holds until it commits.
# Finishers and claims need not wait for it; they only lock slices, then the job.
_ONE_VERB = text("SELECT pg_advisory_xact_lock(hashtextextended(CAST(:job AS text), 0))")
_LOCK_SLICES = text("""
    SELECT start, state FROM slices WHERE job_id = :job AND state <> 'done'
    ORDER BY start FOR UPDATE
""")
_LOCK_JOB = text("SELECT state FROM jobs WHERE id = :job FOR UPDATE")
_SET_STATE = text("UPDATE jobs SET state = :state WHERE id = :job")
_MOVE = text("UPDATE slices SET state = :to WHERE job_id = :job AND state = :from")


def _lock(tx: Tx, job: UUID) -> tuple[Sequence[tuple[int, str]], JobState]:
    tx.execute(_ONE_VERB, {"job": job})
    slices = [(row[0], row[1]) for row in tx.execute(_LOCK_SLICES, {"job": job})]
    return slices, tx.scalars(_LOCK_JOB, {"job": job}).one()


def cancel(tx: Tx, job: UUID) -> str:
    """Pending items end at once; a slice that runs ends at its next launch boundary, or with its
    lease."""
    slices, before = _lock(tx, job)
    if "cancelling" in TRANSITIONS[before]:
        tx.execute(_SET_STATE, {"job": job, "state": "cancelling"})
        end_slices(tx, [(job, start) for start, state in slices if state != "leased"], "cancelled")
        close_finished_jobs(tx, [job])
    return before


def pause(tx: Tx, job: UUID) -> str:
    """Nothing more of it is claimed; what runs finishes its launch."""
    _, before = _lock(tx, job)
    if "paused" in TRANSITIONS[before]:
        tx.execute(_MOVE, {"job": job, "from": "ready", "to": "held"})
        tx.execute(_SET_STATE, {"job": job, "state": "paused"})
    return before


_RESUME = text("""
    UPDATE jobs SET state = CASE WHEN started_at IS NULL THEN 'queued' ELSE 'running' END
    WHERE id = :job
""")


def resume(tx: Tx, job: UUID) -> str:
    """Makes a paused job claimable again."""
    _, before = _lock(tx, job)
    if before == "paused":
        tx.execute(_MOVE, {"job": job, "from": "held", "to": "ready"})
        tx.execute(_RESUME, {"job": job})
        notify_work(tx)
    return before


_LOCK_UNSUCCESSFUL = text("""
    SELECT start FROM slices
    WHERE job_id = :job AND n_failed + n_cancelled + n_expired > 0 ORDER BY start FOR UPDATE
""")
_ARCHIVE = text("""
    WITH gone AS (DELETE FROM results WHERE job_id = :job AND outcome <> 'succeeded' RETURNING *)
    INSERT INTO results_archive
    SELECT jobs.generation, gone.* FROM gone JOIN jobs ON jobs.id = gone.job_id
""")
_REVIVE_SLICES = text("""
    UPDATE slices
    SET state = 'ready', not_before = now(), deaths = 0, suspect = false, finished_at = NULL,
        n_failed = 0, n_cancelled = 0, n_expired = 0
    WHERE job_id = :job AND n_failed + n_cancelled + n_expired > 0
""")
_REVIVE_JOB = text("""
    UPDATE jobs
    SET state = 'queued', generation = generation + 1, started_at = NULL, finished_at = NULL,
        expires_at = now() + make_interval(secs => expires_in_s), error = NULL
    WHERE id = :job
""")


def retry(tx: Tx, job: UUID) -> str:
    """Starts a new generation of a terminal job: what did not succeed runs again, and its former
    results are archived. Nothing happens where all succeeded."""
    tx.execute(_ONE_VERB, {"job": job})
    unsuccessful = tx.execute(_LOCK_UNSUCCESSFUL, {"job": job}).all()
    before: JobState = tx.scalars(_LOCK_JOB, {"job": job}).one()
    if before in TERMINAL and unsuccessful:
        for step in (_ARCHIVE, _REVIVE_SLICES, _REVIVE_JOB):
            tx.execute(step, {"job": job})
        notify_work(tx)
    return before


_DUE = text("""
    SELECT id FROM jobs WHERE finished_at IS NULL AND expires_at < now()
    ORDER BY expires_at LIMIT 100
""")


def due(tx: Tx) -> Sequence[UUID]:
    """Open jobs whose time is up."""
    return tx.scalars(_DUE).all()


def expire(tx: Tx, job: UUID) -> None:
    """Ends a job whose time is up, leases included: partial results are kept."""
    slices, before = _lock(tx, job)
    if before not in TERMINAL:
        end_slices(tx, [(job, start) for start, _ in slices], "expired")
        close_finished_jobs(tx, [job], "expired" if slices else "completed")
