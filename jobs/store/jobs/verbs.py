"""The verbs of a job: cancel, pause, resume, retry, expire, delete.

A job that is not the tenant's is not there: a tenant names itself, a keeper works for everybody.
Each takes its turn, then locks slices, then the job; each returns the state that the job was in,
and does nothing in one that it doesn't fit. Those that end items end some in each transaction:
cancel and expire are begun here, and gone on with until nothing is left.
"""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import RowMapping, text

from jobs.errors import Conflict, NotFound
from jobs.states import TERMINAL, TRANSITIONS, JobState
from jobs.store.db import Tx, disable_statement_timeout, notify_work
from jobs.store.jobs import transfers
from jobs.store.jobs.deletion import delete_jobs
from jobs.store.queue.finish import close_finished_jobs, close_unread, end_slices
from jobs.store.tenancy import EVERYBODY

# Verbs of one job run one after the other: what one saw of its slices holds until it commits.
# Finishers and claims need not wait for it; they only lock slices, then the job.
_ONE_VERB = text("SELECT pg_advisory_xact_lock(hashtextextended(CAST(:job AS text), 0))")
_LOCK_SLICES = text("""
    SELECT start, state FROM slices WHERE job_id = :job AND state <> 'done'
    ORDER BY start FOR UPDATE
""")
_LOCK_SOME = text("""
    SELECT start FROM slices WHERE job_id = :job AND state <> 'done' AND state = ANY(:states)
    ORDER BY start LIMIT :most FOR UPDATE
""")
_LOCK_JOB = text("""
    SELECT state, total, items_pruned, results_pruned, manifest FROM jobs
    WHERE id = :job AND (:tenant = '*' OR tenant_id = :tenant) FOR UPDATE
""")
_SET_STATE = text("UPDATE jobs SET state = :state WHERE id = :job")
_SET_CANCELLING = text("""
    UPDATE jobs SET state = 'cancelling', cancelling_at = now() WHERE id = :job
""")
_MOVE = text("UPDATE slices SET state = :to WHERE job_id = :job AND state = :from")
_MOST_SLICES = 100  # that one transaction looks at to end them


def _lock_job(tx: Tx, job: UUID, tenant: str) -> RowMapping:
    row = tx.execute(_LOCK_JOB, {"job": job, "tenant": tenant}).mappings().one_or_none()
    if row is None:
        raise NotFound("the job was deleted meanwhile")
    return row


def _lock(tx: Tx, job: UUID, tenant: str) -> tuple[Sequence[tuple[int, str]], JobState]:
    tx.execute(_ONE_VERB, {"job": job})
    slices = [(row[0], row[1]) for row in tx.execute(_LOCK_SLICES, {"job": job})]
    return slices, _lock_job(tx, job, tenant)["state"]


def _lock_some(
    tx: Tx, job: UUID, tenant: str, *states: str
) -> tuple[Sequence[tuple[UUID, int]], JobState]:
    tx.execute(_ONE_VERB, {"job": job})
    values = {"job": job, "states": list(states), "most": _MOST_SLICES}
    slices = [(job, start) for start in tx.scalars(_LOCK_SOME, values)]
    return slices, _lock_job(tx, job, tenant)["state"]


def cancel(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> str:
    """Nothing more of it is claimed, and what waits ends: some of it here, the rest by
    `end_cancelled`. A slice that runs ends at its next launch boundary, or with its lease."""
    slices, before = _lock(tx, job, tenant)
    if before == "validating":
        close_unread(tx, job, "cancelled")
    elif "cancelling" in TRANSITIONS[before]:
        tx.execute(_SET_CANCELLING, {"job": job})
        end_slices(tx, [(job, start) for start, state in slices if state != "leased"], "cancelled")
        close_finished_jobs(tx, [job])
    return before


def end_cancelled(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> int:
    """Ends some more of what waits in a cancelled job. Returns 0 once nothing waits."""
    slices, before = _lock_some(tx, job, tenant, "ready", "held")
    if before != "cancelling":
        return 0
    end_slices(tx, slices, "cancelled")
    close_finished_jobs(tx, [job])
    return len(slices)


_CANCELLING = text("""
    SELECT id FROM jobs
    WHERE state = 'cancelling'
      AND EXISTS (SELECT 1 FROM slices WHERE job_id = id AND slices.state IN ('ready', 'held'))
    ORDER BY id LIMIT 100
""")


def unended_cancelled(tx: Tx) -> Sequence[UUID]:
    """Cancelled jobs in which something still waits for its end."""
    return tx.scalars(_CANCELLING).all()


def pause(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> str:
    """Nothing more of it is claimed; what runs finishes its launch. Raises Conflict where its items
    are still to be read."""
    _, before = _lock(tx, job, tenant)
    if before == "validating":
        raise Conflict("its input is still being read; pause it once it is queued, or cancel it")
    if "paused" in TRANSITIONS[before]:
        tx.execute(_MOVE, {"job": job, "from": "ready", "to": "held"})
        tx.execute(_SET_STATE, {"job": job, "state": "paused"})
    return before


_RESUME = text("""
    UPDATE jobs SET state = CASE WHEN started_at IS NULL THEN 'queued' ELSE 'running' END
    WHERE id = :job
""")


def resume(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> str:
    """Makes a paused job claimable again."""
    _, before = _lock(tx, job, tenant)
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
_FORGET_ATTEMPTS = text("""
    DELETE FROM attempts
    WHERE job_id = :job AND NOT EXISTS (SELECT 1 FROM results
                                        WHERE results.job_id = :job AND results.seq = attempts.seq)
""")
_REVIVE_SLICES = text("""
    UPDATE slices
    SET state = 'ready', not_before = now(), deaths = 0, suspect = false, retrying = false,
        finished_at = NULL, n_failed = 0, n_cancelled = 0, n_expired = 0
    WHERE job_id = :job AND n_failed + n_cancelled + n_expired > 0
""")
_REVIVE_JOB = text("""
    UPDATE jobs
    SET state = 'queued', generation = generation + 1, started_at = NULL, finished_at = NULL,
        expires_at = now() + make_interval(secs => expires_in_s), error = NULL, manifest = NULL,
        queued_at = now(), cancelling_at = NULL, written_at = NULL
    WHERE id = :job
""")


def retry(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> str:
    """Starts a new generation of a terminal job: what did not succeed runs again, and its former
    results are archived. What never could be read is read again, and what could not be written
    though all succeeded is written again; else nothing happens where all succeeded. Raises Conflict
    where items or results are pruned."""
    disable_statement_timeout(tx)
    tx.execute(_ONE_VERB, {"job": job})
    unsuccessful = tx.execute(_LOCK_UNSUCCESSFUL, {"job": job}).all()
    row = _lock_job(tx, job, tenant)
    before: JobState = row["state"]
    if before not in TERMINAL:
        return before
    unread = not row["total"]
    if (unread or unsuccessful) and (row["items_pruned"] or row["results_pruned"]):
        raise Conflict("its items were removed at the end of their retention; submit it anew")
    if unread:
        transfers.restart_import(tx, job)
    elif unsuccessful:
        transfers.delete(tx, [job])
        for step in (_ARCHIVE, _FORGET_ATTEMPTS, _REVIVE_SLICES, _REVIVE_JOB):
            tx.execute(step, {"job": job})
        notify_work(tx)
    elif transfers.export_failed(row["manifest"]) and not row["results_pruned"]:
        transfers.restart_export(tx, job)
    return before


_DUE = text("""
    SELECT id FROM jobs WHERE finished_at IS NULL AND expires_at < now()
    ORDER BY expires_at LIMIT 100
""")


def expired(tx: Tx) -> Sequence[UUID]:
    """Open jobs whose time is up."""
    return tx.scalars(_DUE).all()


def expire(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> None:
    """Ends some of a job whose time is up, leases included: partial results are kept. The job is
    due until nothing is left of it; what is claimed until then runs, and counts if it settles."""
    slices, before = _lock_some(tx, job, tenant, "ready", "held", "leased")
    if before == "validating":
        close_unread(tx, job, "expired")
    elif before not in TERMINAL:
        end_slices(tx, slices, "cancelled" if before == "cancelling" else "expired")
        close_finished_jobs(tx, [job])


_LOCK_ALL_SLICES = text("SELECT 1 FROM slices WHERE job_id = :job ORDER BY start FOR UPDATE")
_TO_ERASE = text("""
    INSERT INTO deletions (job_id, tenant_id, total)
    SELECT id, tenant_id, total FROM jobs WHERE id = :job
    ON CONFLICT (job_id) DO UPDATE SET erased = 0
""")


def delete(tx: Tx, job: UUID, tenant: str = EVERYBODY) -> str:
    """Removes a terminal job at once, for its tenant; `erasing` removes its rows and payloads.
    Raises Conflict while it is open."""
    disable_statement_timeout(tx)
    tx.execute(_ONE_VERB, {"job": job})
    tx.execute(_LOCK_ALL_SLICES, {"job": job})
    before: JobState = _lock_job(tx, job, tenant)["state"]
    if before not in TERMINAL:
        raise Conflict(f"the job is {before}; cancel it first, and delete it when it has ended")
    tx.execute(_TO_ERASE, {"job": job})
    delete_jobs(tx, [job])
    return before
