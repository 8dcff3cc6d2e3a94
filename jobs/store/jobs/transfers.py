"""Imports of items from a source, and exports of results to a target, claimed by keepers.

A claim pushes `due_at` forward by a lease, which its keeper renews, and raises the epoch, which is
the fence together with the generation. A transfer whose keeper died falls due again. Locks are
taken on the job, then on its transfer; a claim locks the transfer alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import orjson
from sqlalchemy import ColumnElement, and_, func, insert, literal, select, text, update
from sqlalchemy import delete as delete_from

from jobs import ids
from jobs.identity import Limit
from jobs.store import queries
from jobs.store.billing import quota
from jobs.store.db import TRANSFERS_CHANNEL, Tx, notify
from jobs.store.jobs.insert import INSERT_JOB, LABEL_JOBS, SubmittedJob
from jobs.store.jobs.read import NEW_JOB, JobRow, counted
from jobs.store.tables import jobs as job_table
from jobs.store.tables import transfers as table
from jobs.store.webhooks.deliveries import DELIVER

Kind = Literal["import", "export"]
ProcessEnd = Literal["crashed", "killed"]
"""End of a process that didn't report: by its own fault, or by a signal from outside."""


# The job, its labels, its transfer and the NOTIFY in one statement and round trip.
_INSERT = text(f"""
    WITH job AS ({INSERT_JOB}    ), transfer AS (
        INSERT INTO transfers (job_id, tenant_id, kind, generation)
        SELECT id, tenant_id, 'import', generation FROM job
    ), labelled AS ({LABEL_JOBS}    )
    SELECT {NEW_JOB}, pg_notify(:channel, '') FROM job
""")


def insert_validating(tx: Tx, job: SubmittedJob, limits: Sequence[Limit] = ()) -> JobRow:
    """Stores a job whose items are to be read, notifies keepers at commit, and returns its row.

    limits: of its caller. Raises QuotaExceeded.
    """
    quota.check(tx, job.tenant, limits, job.model.name if job.model else "", 0, job.own_bytes)
    values = job.as_values() | {"channel": TRANSFERS_CHANNEL}
    return JobRow(*tx.execute(_INSERT, values).one()[:-1])


@dataclass(frozen=True, slots=True)
class Transfer:
    """One claim of a transfer."""

    job_id: UUID  #: its job
    tenant: str  #: tenant of the job
    kind: Kind  #: import or export
    generation: int  #: generation of the job
    epoch: int  #: number of this claim
    tries: int  #: tries up to and including this one
    deaths: int  #: claims before this one whose process crashed, since one that didn't
    kills: int  #: those whose process was killed, or that nothing is known of, and this one
    traceparent: str | None = None  #: trace context of the job's request

    @property
    def named(self) -> dict[str, str]:
        """Fields of its log lines."""
        return {"job_id": ids.show("job", self.job_id), "tenant": self.tenant}

    def __str__(self) -> str:
        return f"{self.kind} of {ids.show('job', self.job_id)}"

    def fence(self) -> ColumnElement[bool]:
        """Condition that holds while this claim is the last one of its generation."""
        t = table.c
        its = t.job_id == self.job_id, t.kind == self.kind
        return and_(*its, t.generation == self.generation, t.epoch == self.epoch)


# The tenant that has the fewest transfers running comes first, so that one tenant's thousand
# imports keep another's waiting for one at most. Locked rows are another keeper's; `due_at` is the
# lease. Written out: claim, lease and trace context are one round trip.
_CLAIM = text("""
    WITH due AS (
        SELECT t.job_id, t.kind
        FROM transfers t
        LEFT JOIN (SELECT tenant_id, count(*) AS count FROM transfers
                   WHERE claimed_at IS NOT NULL AND due_at > now()
                   GROUP BY tenant_id) AS in_hand USING (tenant_id)
        WHERE t.due_at <= now() AND t.tenant_id <> ALL(CAST(:not_of AS text[]))
        ORDER BY coalesce(in_hand.count, 0), t.due_at LIMIT 1 FOR UPDATE OF t SKIP LOCKED
    )
    UPDATE transfers t
    SET epoch = t.epoch + 1, tries = t.tries + 1, kills = t.kills + 1, claimed_at = now(),
        due_at = now() + make_interval(secs => :lease_s)
    FROM due WHERE t.job_id = due.job_id AND t.kind = due.kind
    RETURNING t.job_id, t.tenant_id, t.kind, t.generation, t.epoch, t.tries, t.deaths, t.kills,
              (SELECT traceparent FROM jobs
               WHERE jobs.id = t.job_id AND jobs.tenant_id = t.tenant_id)
""")


def claim(tx: Tx, lease_s: float, not_of: Sequence[str] = ()) -> Transfer | None:
    """Leases the next transfer that is due to the caller, for lease_s. not_of: tenants whose
    transfers wait, since they have enough of the caller's processes."""
    return queries.one(tx, Transfer, _CLAIM, {"lease_s": lease_s, "not_of": list(not_of)})


def renew(tx: Tx, mine: Transfer, lease_s: float) -> bool:
    """Prolongs the lease; False: the transfer is another keeper's, or done."""
    renewed = update(table).where(mine.fence()).values(due_at=queries.in_s(lease_s))
    return tx.execute(renewed).rowcount > 0


def postpone(
    tx: Tx, mine: Transfer, wait_s: float, error: str, *, end: ProcessEnd | None = None
) -> None:
    """Schedules the next try in wait_s. end: of the process of this one."""
    values: dict[str, Any] = {"claimed_at": None, "due_at": queries.in_s(wait_s)}
    counts: dict[str, Any] = {"deaths": 0, "kills": 0}
    if end == "crashed":
        counts = {"deaths": table.c.deaths + 1, "kills": table.c.kills - 1}
    elif end == "killed":  # the claim has counted it
        counts = {}
    values |= {"last_error": error} | counts
    tx.execute(update(table).where(mine.fence()).values(values))


def release(tx: Tx, mine: Transfer) -> None:
    """Gives the transfer back untried, for any keeper to claim."""
    untried = {"tries": table.c.tries - 1, "kills": table.c.kills - 1}
    values = {"claimed_at": None, "due_at": func.now(), **untried}
    tx.execute(update(table).where(mine.fence()).values(values))


def _job_of(mine: Transfer) -> ColumnElement[bool]:
    j = job_table.c
    its = j.id == mine.job_id, j.tenant_id == mine.tenant
    return and_(*its, j.generation == mine.generation)


def job(tx: Tx, mine: Transfer) -> JobRow | None:
    """Returns its job; None: the job is gone, or in another generation."""
    return queries.one(tx, JobRow, counted(select(job_table).where(_job_of(mine))))


def finish(tx: Tx, mine: Transfer) -> bool:
    """Locks the job, and deletes its transfer.

    False: the transfer is no longer the caller's, and the transaction must not be committed.
    """
    tx.execute(select(job_table.c.id).where(_job_of(mine)).with_for_update())
    done = delete_from(table).where(mine.fence(), table.c.tenant_id == mine.tenant)
    return tx.execute(done).rowcount > 0


# Writes the manifest and, with it, the webhook of the job's end, which waited for the export.
# Written out, as DELIVER is.
_SET_MANIFEST = text(f"""
    WITH closed AS (
        UPDATE jobs SET manifest = :manifest, written_at = now()
        WHERE id = :job AND tenant_id = :tenant RETURNING *)
    {DELIVER}
""")


def set_manifest(tx: Tx, mine: Transfer, manifest: dict[str, Any]) -> None:
    """Sets what was written, or why nothing was, and writes the webhook of the job's end."""
    values = {"job": mine.job_id, "tenant": mine.tenant}
    tx.execute(_SET_MANIFEST, values | {"manifest": orjson.dumps(manifest).decode()})


def export_failed(manifest: str | None) -> bool:
    """Returns True if a job's manifest holds an error."""
    return manifest is not None and "error" in orjson.loads(manifest)


def delete(tx: Tx, jobs: Sequence[UUID]) -> None:
    """Deletes transfers of jobs that the caller has locked: their keepers write nothing more."""
    tx.execute(delete_from(table).where(table.c.job_id.in_(jobs)))


def restart_import(tx: Tx, job: UUID) -> None:
    """Starts a new generation of a job that ended before its items were read."""
    expires_at = queries.in_s(job_table.c.expires_in_s)
    again = {"state": "validating", "finished_at": None, "error": None, "expires_at": expires_at}
    again |= {"cancelling_at": None}
    _restart(tx, job, "import", again)


def restart_export(tx: Tx, job: UUID) -> None:
    """Starts a new generation of an ended job with the same results, to write them again."""
    _restart(tx, job, "export", {})


def _restart(tx: Tx, job: UUID, kind: Kind, values: Mapping[str, Any]) -> None:
    """Starts a new generation, for which the fence of the one before no longer holds."""
    j = job_table.c
    new = update(job_table).where(j.id == job).values(generation=j.generation + 1, **values)
    row = new.values(manifest=None, written_at=None).returning(j.id, j.tenant_id, j.generation)
    names = ["job_id", "tenant_id", "generation", "kind"]
    restarted = row.cte("job")
    tx.execute(insert(table).from_select(names, select(*restarted.c, literal(kind))))
    notify(tx, TRANSFERS_CHANNEL)
