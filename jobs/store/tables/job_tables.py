"""Tables of jobs, and of all that belongs to one."""

from typing import Any

from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

from jobs.store.tables.columns import (
    EMPTY,
    FALSE,
    NOW,
    TRUE,
    ZERO,
    Time,
    column,
    counts,
    key,
    metadata,
    result_columns,
)

_BY_JOB: dict[str, Any] = {"postgresql_partition_by": "RANGE (job_id)"}

jobs = Table(
    "jobs",
    metadata,
    key("id", Uuid),
    column("tenant_id", Text),
    column("model", Text),
    column("version", Text),
    column("class", Text, key="job_class"),
    column("priority", Integer),
    column("state", Text),
    column("params", Text),
    column("metadata", Text),
    column("custom_ids", Boolean),
    column("total", Integer),
    column("generation", Integer, text("1")),
    column("created_at", Time, NOW),
    Column("started_at", Time),
    Column("finished_at", Time),
    Column("expires_in_s", Double),
    Column("expires_at", Time),
    Column("error", Text),
    *counts(),
    Column("webhook_url", Text),
    column("items_pruned", Boolean, FALSE),
    column("results_pruned", Boolean, FALSE),
    column("input_bytes", BigInteger, ZERO),
    column("output_bytes", BigInteger, ZERO),
    column("key_id", Text, EMPTY),
    column("billed", Boolean, TRUE),
    column("dialect", Text, text("'native'")),
    Column("asked", Text),
    Column("source", Text),
    Column("target", Text),
    Column("manifest", Text),
    Column("queued_at", Time),
    Column("cancelling_at", Time),
    Column("written_at", Time),
    Column("traceparent", Text),
)
Index("jobs_newest", jobs.c.tenant_id, jobs.c.id.desc())
Index("jobs_open", jobs.c.expires_at, postgresql_where=text("finished_at IS NULL"))
Index("jobs_cancelling", jobs.c.id, postgresql_where=text("state = 'cancelling'"))
Index("jobs_with_items", jobs.c.id, postgresql_where=text("NOT items_pruned"))
Index("jobs_with_results", jobs.c.id, postgresql_where=text("NOT results_pruned"))
Index(
    "jobs_stored",
    jobs.c.tenant_id,
    postgresql_include=[
        "model", "key_id", "input_bytes", "output_bytes", "items_pruned", "results_pruned",
    ],
    postgresql_where=text("NOT (items_pruned AND results_pruned)"),
)  # fmt: skip

items = Table(
    "items",
    metadata,
    key("job_id", Uuid),
    column("tenant_id", Text),
    key("seq", Integer),
    Column("custom_id", Text),
    Column("params", Text),
    column("input", Text),
    Column("reply", Text),
    **_BY_JOB,
)

slices = Table(
    "slices",
    metadata,
    key("job_id", Uuid),
    key("start", Integer),
    column("stop", Integer),
    column("tenant_id", Text),
    column("model", Text),
    column("version", Text),
    column("priority", Integer),
    column("state", Text, text("'ready'")),
    column("not_before", Time, NOW),
    column("epoch", Integer, ZERO),
    Column("lease_owner", BigInteger),
    Column("lease_until", Time),
    column("deaths", Integer, ZERO),
    column("suspect", Boolean, FALSE),
    Column("finished_at", Time),
    *counts(),
    column("retrying", Boolean, FALSE),
    column("due_at", Time, NOW),
    column("charged_ms", REAL, ZERO),
    column("output_bytes", BigInteger, ZERO),
    column("inputs", Integer, text("1")),
    Column("worker", BigInteger),
    Column("claimed_at", Time),
)
for _name, _where in (
    ("slices_ready", "state = 'ready' AND NOT suspect"),
    ("slices_suspect", "state = 'ready' AND suspect"),
):
    Index(
        _name, slices.c.model, slices.c.version, slices.c.tenant_id, slices.c.priority.desc(),
        slices.c.due_at, slices.c.job_id, slices.c.start, postgresql_where=text(_where),
    )  # fmt: skip
Index(
    "slices_open", slices.c.job_id, slices.c.start, postgresql_where=text("state <> 'done'")
)  # fmt: skip
Index("slices_leased", slices.c.lease_until, postgresql_where=text("state = 'leased'"))
Index(
    "slices_of_tenant",
    slices.c.tenant_id,
    slices.c.finished_at,
    postgresql_include=[
        "model", "start", "stop", "n_succeeded", "n_failed", "n_cancelled", "n_expired",
    ],
)  # fmt: skip

results = Table(
    "results",
    metadata,
    key("job_id", Uuid),
    key("seq", Integer),
    *result_columns(),
    **_BY_JOB,
)

results_archive = Table(
    "results_archive",
    metadata,
    column("generation", Integer),
    column("job_id", Uuid),
    column("seq", Integer),
    *result_columns(),
    Index("results_archive_job", "job_id", "seq", "generation"),
)

attempts = Table(
    "attempts",
    metadata,
    key("job_id", Uuid),
    column("tenant_id", Text),
    key("seq", Integer),
    key("n", SmallInteger),
    column("error", Text),
    Column("launch_id", BigInteger),
    column("at", Time, NOW),
    column("due_at", Time),
    **_BY_JOB,
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    key("tenant_id", Text),
    key("key", Text),
    column("fingerprint", LargeBinary),
    column("job_id", Uuid),
    column("answer", Text),
    column("created_at", Time, NOW),
    Index("idempotency_keys_age", "created_at"),
    Index("idempotency_keys_job", "job_id"),
)

deletions = Table(
    "deletions",
    metadata,
    key("job_id", Uuid),
    column("tenant_id", Text),
    column("total", Integer),
    column("erased", Integer, ZERO),
    column("deleted_at", Time, NOW),
)

files = Table(
    "files",
    metadata,
    key("id", Uuid),
    column("tenant_id", Text),
    column("purpose", Text),
    column("filename", Text),
    column("bytes", BigInteger),
    column("sha256", LargeBinary),
    column("key", Text),
    column("key_id", Text, EMPTY),
    column("created_at", Time, NOW),
    Column("expires_at", Time),
    column("complete", Boolean, TRUE),
    Index("files_expiry", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
)
Index("files_tenant", files.c.tenant_id, files.c.id.desc())

transfers = Table(
    "transfers",
    metadata,
    key("job_id", Uuid),
    column("tenant_id", Text),
    key("kind", Text),
    column("generation", Integer),
    column("tries", Integer, ZERO),
    column("deaths", Integer, ZERO),
    Column("claimed_at", Time),
    column("due_at", Time, NOW),
    column("epoch", BigInteger, ZERO),
    Column("last_error", Text),
    Index("transfers_due", "due_at"),
)
