"""Jobs on their way in from a source, or out to a target: what waits to be read or written, claimed
by keepers, and finished by the last one that did.

A claim pushes `due_at` forward by a lease, which its keeper renews, and raises the epoch: with the
generation, the fence. Whoever dies in between is not missed: the transfer falls due again. Locks
are taken on the job, then on its transfer; a claim locks the transfer alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import orjson
from sqlalchemy import RowMapping, text

from jobs import ids
from jobs.models.model import Model
from jobs.states import JobClass
from jobs.store.db import TRANSFERS_CHANNEL, Tx
from jobs.store.jobs.insert import NEW_JOB_COLUMNS
from jobs.store.webhooks.deliveries import DELIVER

Kind = Literal["import", "export"]


@dataclass(frozen=True, slots=True)
class UnreadJob:
    """A job whose items are still where `source` says. source, asked, target, params, metadata:
    JSON texts; model: None where its dialect learns it from the lines; expires_in_s: None for
    never; key: the one that it came by; traceparent: see NewJob."""

    id: UUID
    tenant: str
    source: str
    model: Model | None = None
    dialect: str = "native"
    asked: str | None = None
    target: str | None = None
    job_class: JobClass = "standard"
    priority: int = 0
    params: str = "{}"
    metadata: str = "{}"
    expires_in_s: float | None = 86_400.0
    webhook_url: str | None = None
    key: str = ""
    traceparent: str | None = None


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
    SELECT job.*, {NEW_JOB_COLUMNS}, pg_notify(:channel, '') FROM job
""")


def insert_validating(tx: Tx, job: UnreadJob) -> RowMapping:
    """Stores a job whose items are to be read, tells keepers at commit, and returns its row as
    `reading.one` does."""
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
    return tx.execute(_INSERT, values).mappings().one()


@dataclass(frozen=True, slots=True)
class Transfer:
    """One claim. tries: this one included; deaths: of those in a row whose process ended without
    a word, this one included; traceparent: its job's."""

    job_id: UUID
    tenant: str
    kind: Kind
    generation: int
    epoch: int
    tries: int
    deaths: int
    traceparent: str | None = None

    @property
    def named(self) -> dict[str, str]:
        """For lines of the log."""
        return {"job_id": ids.show("job", self.job_id), "tenant": self.tenant}

    def __str__(self) -> str:
        return f"{self.kind} of {ids.show('job', self.job_id)}"

    def fence(self) -> dict[str, Any]:
        names = ("job_id", "kind", "generation", "epoch")
        return {name: getattr(self, name) for name in names}


# Of the tenants that have something due the one of which least is in hand comes first: nobody's
# thousand imports keep another's waiting for more than one.
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
    """Takes the next one that is due; it is the caller's for lease_s."""
    found = tx.execute(_CLAIM, {"lease_s": lease_s}).one_or_none()
    return Transfer(*found) if found else None


_MINE = """job_id = :job_id AND kind = :kind AND generation = :generation AND epoch = :epoch"""
_RENEW = text(f"""
    UPDATE transfers SET due_at = now() + make_interval(secs => :lease_s) WHERE {_MINE}
""")
_POSTPONE = text(f"""
    UPDATE transfers
    SET claimed_at = NULL, due_at = now() + make_interval(secs => :wait_s), last_error = :error,
        deaths = CASE WHEN :died THEN deaths ELSE 0 END
    WHERE {_MINE}
""")
_RELEASE = text(f"""
    UPDATE transfers
    SET claimed_at = NULL, due_at = now(), tries = tries - 1, deaths = deaths - 1
    WHERE {_MINE}
""")


def renew(tx: Tx, mine: Transfer, lease_s: float) -> bool:
    """False: it is not ours any more; or it is done."""
    return tx.execute(_RENEW, mine.fence() | {"lease_s": lease_s}).rowcount > 0


def postpone(tx: Tx, mine: Transfer, wait_s: float, error: str, *, died: bool = False) -> None:
    """The next try comes after wait_s. died: its process ended without a word."""
    values = {"wait_s": wait_s, "error": error, "died": died}
    tx.execute(_POSTPONE, mine.fence() | values)


def release(tx: Tx, mine: Transfer) -> None:
    """Gives it back untried, to whoever comes."""
    tx.execute(_RELEASE, mine.fence())


_JOB = text("""
    SELECT j.*, now() AS read_at FROM jobs j
    WHERE id = :job_id AND tenant_id = :tenant AND generation = :generation
""")
_LOCK_JOB = text("""
    SELECT 1 FROM jobs
    WHERE id = :job_id AND tenant_id = :tenant AND generation = :generation FOR UPDATE
""")
_TAKE_OFF = text(f"DELETE FROM transfers WHERE tenant_id = :tenant AND {_MINE}")


def job(tx: Tx, mine: Transfer) -> RowMapping | None:
    """The row of its job; None: it is gone, or in another generation."""
    values = {"job_id": mine.job_id, "tenant": mine.tenant, "generation": mine.generation}
    return tx.execute(_JOB, values).mappings().one_or_none()


def finish(tx: Tx, mine: Transfer) -> bool:
    """Locks the job, and takes its transfer off. False: it is not ours any more, and whatever this
    transaction wrote must not be committed."""
    values = mine.fence() | {"tenant": mine.tenant}
    tx.execute(_LOCK_JOB, {name: values[name] for name in ("job_id", "tenant", "generation")})
    return tx.execute(_TAKE_OFF, values).rowcount > 0


_SET_MANIFEST = text(f"""
    WITH closed AS (
        UPDATE jobs SET manifest = :manifest, written_at = now()
        WHERE id = :job AND tenant_id = :tenant RETURNING *)
    {DELIVER}
""")


def set_manifest(tx: Tx, mine: Transfer, manifest: dict[str, Any]) -> None:
    """What was written, or why nothing was; the webhook of the job's end follows."""
    values = {"job": mine.job_id, "tenant": mine.tenant}
    tx.execute(_SET_MANIFEST, values | {"manifest": orjson.dumps(manifest).decode()})


def export_failed(manifest: str | None) -> bool:
    return manifest is not None and "error" in orjson.loads(manifest)


_FORGET = text("DELETE FROM transfers WHERE job_id = ANY(:jobs)")
_AGAIN = """
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
_READ_AGAIN = text(
    _AGAIN.format(
        kind="import",
        more=""", state = 'validating', finished_at = NULL, error = NULL,
            expires_at = now() + make_interval(secs => expires_in_s)""",
    )
)
_WRITE_AGAIN = text(_AGAIN.format(kind="export", more=""))


def delete(tx: Tx, jobs: Sequence[UUID]) -> None:
    """Of jobs that the caller has locked: who reads or writes them writes nothing any more."""
    tx.execute(_FORGET, {"jobs": list(jobs)})


def restart_import(tx: Tx, job: UUID) -> None:
    """A new generation of a job that ended before its items were read."""
    tx.execute(_READ_AGAIN, {"job": job, "channel": TRANSFERS_CHANNEL})


def restart_export(tx: Tx, job: UUID) -> None:
    """A new generation of one that ended, with the same results."""
    tx.execute(_WRITE_AGAIN, {"job": job, "channel": TRANSFERS_CHANNEL})
