"""Jobs on their way in from a source, or out to a target: what waits to be read or written, claimed
by keepers, and finished by the last one that did.

A claim pushes `due_at` forward by a lease, which its keeper renews, and raises the epoch: with the
generation, the fence. Whoever dies in between is not missed: the transfer falls due again. Locks
are taken on the job, then on its transfer; a claim locks the transfer alone.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping, text

from jobs.registry import Model
from jobs.states import JobClass
from jobs.store.db import TRANSFERS_CHANNEL, Tx
from jobs.store.submissions import NOTHING_RAN


@dataclass(frozen=True, slots=True)
class ComingJob:
    """A job whose items are still where `source` says. source, asked, target, params, metadata:
    JSON texts; model: None where its dialect learns it from the lines; expires_in_s: None for
    never; key: the one that it came by."""

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


_INSERT = text(f"""
    WITH job AS (
        INSERT INTO jobs (id, tenant_id, model, version, class, priority, state, params, metadata,
                          custom_ids, total, expires_in_s, expires_at, webhook_url, key_id,
                          dialect, asked, source, target)
        VALUES (:id, :tenant, :model, :version, :class, :priority, 'validating', :params,
                :metadata, false, 0, :expires_in_s,
                now() + make_interval(secs => :expires_in_s), :webhook_url, :key, :dialect,
                :asked, :source, :target)
        RETURNING *
    ), transfer AS (
        INSERT INTO transfers (job_id, tenant_id, kind, generation)
        SELECT id, tenant_id, 'import', generation FROM job
    )
    SELECT job.*, {NOTHING_RAN}, pg_notify(:channel, '') FROM job
""")


def insert_validating(tx: Tx, job: ComingJob) -> RowMapping:
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
        "channel": TRANSFERS_CHANNEL,
    }
    return tx.execute(_INSERT, values).mappings().one()
