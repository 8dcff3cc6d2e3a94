"""A job on its way in: its row, its items by COPY, its slices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any
from uuid import UUID

from sqlalchemy import text

from jobs.registry import Model
from jobs.states import JobClass
from jobs.store.db import Tx, cursor, notify_work

_COPY_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job as it is stored. params, metadata: JSON texts; expires_in_s: None for never."""

    id: UUID
    tenant: str
    model: Model
    job_class: JobClass
    priority: int
    params: str
    metadata: str
    custom_ids: bool
    expires_in_s: float | None
    webhook_url: str | None


_INSERT_JOB = text("""
    INSERT INTO jobs (id, tenant_id, model, version, class, priority, state, params, metadata,
                      custom_ids, total, expires_in_s, expires_at, webhook_url)
    VALUES (:id, :tenant, :model, :version, :class, :priority, 'queued', :params, :metadata,
            :custom_ids, :total, :expires_in_s, now() + make_interval(secs => :expires_in_s),
            :webhook_url)
""")

_INSERT_SLICES = text("""
    INSERT INTO slices (job_id, tenant_id, start, stop, model, version, priority)
    SELECT :id, :tenant, start, stop, :model, :version, :priority
    FROM unnest(CAST(:starts AS int[]), CAST(:stops AS int[])) AS s (start, stop)
""")


def insert_job(tx: Tx, job: NewJob, rows: IO[bytes], bounds: Sequence[int]) -> None:
    """Stores a job. rows: COPY text of `items`; bounds: each slice's start, then the total."""
    values: dict[str, Any] = {
        "id": job.id,
        "tenant": job.tenant,
        "model": job.model.name,
        "version": job.model.version,
        "priority": job.priority,
    }
    details = {
        "class": job.job_class,
        "params": job.params,
        "metadata": job.metadata,
        "custom_ids": job.custom_ids,
        "total": bounds[-1],
        "expires_in_s": job.expires_in_s,
        "webhook_url": job.webhook_url,
    }
    tx.execute(_INSERT_JOB, values | details)
    with cursor(tx).copy(
        "COPY items (job_id, tenant_id, seq, custom_id, params, input) FROM STDIN"
    ) as copy:
        while chunk := rows.read(_COPY_CHUNK):
            copy.write(chunk)
    tx.execute(_INSERT_SLICES, values | {"starts": list(bounds[:-1]), "stops": list(bounds[1:])})
    notify_work(tx)
