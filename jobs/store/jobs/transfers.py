"""Imports of items from a source, and exports of results to a target, claimed by keepers.

A claim pushes `due_at` forward by a lease, which its keeper renews, and raises the epoch, which is
the fence together with the generation. A transfer whose keeper died falls due again. Locks are
taken on the job, then on its transfer; a claim locks the transfer alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import orjson
from sqlalchemy import ColumnElement, and_, func, select, text, update
from sqlalchemy import delete as delete_from

from jobs import ids
from jobs.models.model import Model
from jobs.states import JobClass
from jobs.store import queries
from jobs.store.db import TRANSFERS_CHANNEL, Tx
from jobs.store.jobs.read import NEW_JOB, JobRow, counted
from jobs.store.tables import jobs as job_table
from jobs.store.tables import transfers as table
from jobs.store.webhooks.deliveries import DELIVER

Kind = Literal["import", "export"]


@dataclass(frozen=True, slots=True)
class UnreadJob:
    """A job whose items are still in their source."""

    id: UUID  #: its id
    tenant: str  #: its tenant
    source: str  #: JSON object; source of its items
    model: Model | None = None  #: None: its dialect reads it from the lines
    dialect: str = "native"  #: dialect of its items and results
    asked: str | None = None  #: JSON object; what its dialect was asked beyond a job's own fields
    target: str | None = None  #: JSON object; target of its results
    job_class: JobClass = "standard"  #: scheduling class
    priority: int = 0  #: -100 to 100, higher first
    params: str = "{}"  #: JSON object
    metadata: str = "{}"  #: JSON object
    expires_in_s: float | None = 86_400.0  #: time to live, s; None: it never expires
    webhook_url: str | None = None  #: receiver of its webhook
    key: str = ""  #: API key (`key_…`) of its caller
    traceparent: str | None = None  #: packed TraceContext of its request


# The job, its transfer and the NOTIFY in one statement and round trip.
_INSERT = text(f"""
    WITH job AS (
        INSERT INTO jobs (id, tenant_id, model, version, class, priority, state, params, metadata,
                          custom_ids, total, expires_in_s, expires_at, webhook_url, key_id,
                          dialect, asked, source, target, traceparent)
        VALUES (:id, :tenant, :model, :version, :class, :priority, 'validating', :params,
                :metadata, false, 0, :expires_in_s,
                now() + make_interval(secs => :expires_in_s), :webhook_url, :key, :dialect,
                :asked, :source, :target, :traceparent)
        RETURNING *
    ), transfer AS (
        INSERT INTO transfers (job_id, tenant_id, kind, generation)
        SELECT id, tenant_id, 'import', generation FROM job
    )
    SELECT {NEW_JOB}, pg_notify(:channel, '') FROM job
""")


def insert_validating(tx: Tx, job: UnreadJob) -> JobRow:
    """Stores a job whose items are to be read, notifies keepers at commit, and returns its row."""
    values: dict[str, Any] = {
        "id": job.id,
        "tenant": job.tenant,
        "model": job.model.name if job.model else "",
        "version": job.model.version if job.model else "",
        "class": job.job_class,
        "priority": job.priority,
        "params": job.params,
        "metadata": job.metadata,
        "expires_in_s": job.expires_in_s,
        "webhook_url": job.webhook_url,
        "key": job.key,
        "dialect": job.dialect,
        "asked": job.asked,
        "source": job.source,
        "target": job.target,
        "traceparent": job.traceparent,
        "channel": TRANSFERS_CHANNEL,
    }
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
    deaths: int  #: claims in a row whose process died, up to and including this one
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
# lease.
_CLAIM = text("""
    WITH due AS (
        SELECT t.job_id, t.kind
        FROM transfers t
        LEFT JOIN (SELECT tenant_id, count(*) AS count FROM transfers
                   WHERE claimed_at IS NOT NULL AND due_at > now()
                   GROUP BY tenant_id) AS in_hand USING (tenant_id)
        WHERE t.due_at <= now()
        ORDER BY coalesce(in_hand.count, 0), t.due_at LIMIT 1 FOR UPDATE OF t SKIP LOCKED
    )
    UPDATE transfers t
    SET epoch = t.epoch + 1, tries = t.tries + 1, deaths = t.deaths + 1, claimed_at = now(),
        due_at = now() + make_interval(secs => :lease_s)
    FROM due WHERE t.job_id = due.job_id AND t.kind = due.kind
    RETURNING t.job_id, t.tenant_id, t.kind, t.generation, t.epoch, t.tries, t.deaths,
              (SELECT traceparent FROM jobs
               WHERE jobs.id = t.job_id AND jobs.tenant_id = t.tenant_id)
""")


def claim(tx: Tx, lease_s: float) -> Transfer | None:
    """Leases the next transfer that is due to the caller, for lease_s."""
    return queries.one(tx, Transfer, _CLAIM, {"lease_s": lease_s})


def renew(tx: Tx, mine: Transfer, lease_s: float) -> bool:
    """Prolongs the lease; False: the transfer is another keeper's, or done."""
    renewed = update(table).where(mine.fence()).values(due_at=queries.in_s(lease_s))
    return tx.execute(renewed).rowcount > 0


def postpone(tx: Tx, mine: Transfer, wait_s: float, error: str, *, died: bool = False) -> None:
    """Schedules the next try in wait_s. died: the process of this one died."""
    values: dict[str, Any] = {"claimed_at": None, "due_at": queries.in_s(wait_s)}
    values |= {"last_error": error} | ({} if died else {"deaths": 0})
    tx.execute(update(table).where(mine.fence()).values(values))


def release(tx: Tx, mine: Transfer) -> None:
    """Gives the transfer back untried, for any keeper to claim."""
    untried = {"tries": table.c.tries - 1, "deaths": table.c.deaths - 1}
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


# A new generation, its transfer and the NOTIFY in one statement: the fence of the generation before
# no longer holds.
_RESTART = """
    WITH job AS (
        UPDATE jobs
        SET generation = generation + 1, manifest = NULL, written_at = NULL {more}
        WHERE id = :job RETURNING *
    ), transfer AS (
        INSERT INTO transfers (job_id, tenant_id, kind, generation)
        SELECT id, tenant_id, '{kind}', generation FROM job
    )
    SELECT pg_notify(:channel, '')
"""
_RESTART_IMPORT = text(
    _RESTART.format(
        kind="import",
        more=""", state = 'validating', finished_at = NULL, error = NULL,
            expires_at = now() + make_interval(secs => expires_in_s)""",
    )
)
_RESTART_EXPORT = text(_RESTART.format(kind="export", more=""))


def delete(tx: Tx, jobs: Sequence[UUID]) -> None:
    """Deletes transfers of jobs that the caller has locked: their keepers write nothing more."""
    tx.execute(delete_from(table).where(table.c.job_id.in_(jobs)))


def restart_import(tx: Tx, job: UUID) -> None:
    """Starts a new generation of a job that ended before its items were read."""
    tx.execute(_RESTART_IMPORT, {"job": job, "channel": TRANSFERS_CHANNEL})


def restart_export(tx: Tx, job: UUID) -> None:
    """Starts a new generation of an ended job with the same results, to write them again."""
    tx.execute(_RESTART_EXPORT, {"job": job, "channel": TRANSFERS_CHANNEL})
