"""Describes the tables for SQLAlchemy Core. Migrations make them; a test compares the two.

Columns of one type stand together, not in the order of the database. Check constraints, storage
parameters, rights and policies stand in the migrations alone.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    REAL,
    BigInteger,
    Boolean,
    Column,
    Date,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ENUM, JSONB, TIMESTAMP

metadata = MetaData()
_Time = TIMESTAMP(timezone=True)
_OUTCOME = ENUM(
    "succeeded", "failed", "cancelled", "expired", name="outcome", metadata=metadata
)  # fmt: skip
_N_ENDED = ("n_succeeded", "n_failed", "n_cancelled", "n_expired")


def _table(name: str, *parts: Any, **options: Any) -> Table:
    return Table(name, metadata, *parts, **options)


def _nullable(type: Any, *names: str) -> Sequence[Column[Any]]:
    return [Column(name, type) for name in names]


def _required(type: Any, *names: str, default: str | None = None) -> Sequence[Column[Any]]:
    """Columns that are never null. default: SQL."""
    server_default = None if default is None else text(default)
    return [Column(name, type, nullable=False, server_default=server_default) for name in names]


def _times(*names: str) -> Sequence[Column[Any]]:
    """Times that are set when the row is inserted."""
    return _required(_Time, *names, default="now()")


def _counts(*names: str, type: Any = Integer) -> Sequence[Column[Any]]:
    """Numbers that begin at 0."""
    return _required(type, *names, default="0")


def _key(type: Any, *names: str, **options: Any) -> Sequence[Column[Any]]:
    """Columns of the primary key."""
    return [Column(name, type, primary_key=True, autoincrement=False, **options) for name in names]


def _number(name: str = "id") -> Column[Any]:
    """A primary key that the database counts up."""
    return Column(name, BigInteger, Identity(always=True), primary_key=True)


def _class() -> Column[Any]:
    return Column("class", Text, key="job_class", nullable=False)


jobs = _table(
    "jobs",
    *_key(Uuid, "id"),
    *_required(Text, "tenant_id", "model", "version", "state", "params", "metadata"),
    _class(),
    *_required(Integer, "priority", "total"),
    *_required(Boolean, "custom_ids"),
    *_required(Integer, "generation", default="1"),
    *_times("created_at"),
    *_nullable(_Time, "started_at", "finished_at", "expires_at"),
    *_nullable(_Time, "queued_at", "cancelling_at", "written_at"),
    *_nullable(Double, "expires_in_s"),
    *_counts(*_N_ENDED),
    *_counts("input_bytes", "output_bytes", type=BigInteger),
    *_required(Boolean, "items_pruned", "results_pruned", default="false"),
    *_required(Boolean, "billed", default="true"),
    *_required(Text, "key_id", default="''"),
    *_required(Text, "dialect", default="'native'"),
    *_nullable(Text, "error", "webhook_url", "asked", "source", "target", "manifest"),
    *_nullable(Text, "traceparent"),
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

_BY_JOB: dict[str, Any] = {"postgresql_partition_by": "RANGE (job_id)"}

items = _table(
    "items",
    *_key(Uuid, "job_id"),
    *_key(Integer, "seq"),
    *_required(Text, "tenant_id", "input"),
    *_nullable(Text, "custom_id", "params", "reply"),
    **_BY_JOB,
)

slices = _table(
    "slices",
    *_key(Uuid, "job_id"),
    *_key(Integer, "start"),
    *_required(Integer, "stop", "priority"),
    *_required(Text, "tenant_id", "model", "version"),
    *_required(Text, "state", default="'ready'"),
    *_required(Integer, "inputs", default="1"),
    *_times("not_before", "due_at"),
    *_nullable(_Time, "lease_until", "claimed_at", "finished_at"),
    *_nullable(BigInteger, "lease_owner", "worker"),
    *_counts("epoch", "deaths", *_N_ENDED),
    *_counts("output_bytes", type=BigInteger),
    *_counts("charged_ms", type=REAL),
    *_required(Boolean, "suspect", "retrying", default="false"),
)
for _name, _where in (
    ("slices_ready", "state = 'ready' AND NOT suspect"),
    ("slices_suspect", "state = 'ready' AND suspect"),
):
    Index(
        _name, slices.c.model, slices.c.version, slices.c.tenant_id, slices.c.priority.desc(),
        slices.c.due_at, slices.c.job_id, slices.c.start, postgresql_where=text(_where),
    )  # fmt: skip
Index("slices_open", slices.c.job_id, slices.c.start, postgresql_where=text("state <> 'done'"))
Index("slices_leased", slices.c.lease_until, postgresql_where=text("state = 'leased'"))
Index(
    "slices_of_tenant",
    slices.c.tenant_id,
    slices.c.finished_at,
    postgresql_include=["model", "start", "stop", *_N_ENDED],
)


def _result_columns() -> Sequence[Column[Any]]:
    """Columns of a result, its key aside."""
    return [
        *_required(Text, "tenant_id"),
        *_required(_OUTCOME, "outcome"),
        *_required(SmallInteger, "attempts"),
        *_required(Integer, "units"),
        *_counts("device_us", type=BigInteger),
        *_nullable(REAL, "wait_ms"),
        *_nullable(BigInteger, "launch_id"),
        *_nullable(Text, "error", "output"),
    ]


results = _table(
    "results",
    *_key(Uuid, "job_id"),
    *_key(Integer, "seq"),
    *_result_columns(),
    **_BY_JOB,
)

results_archive = _table(
    "results_archive",
    *_required(Uuid, "job_id"),
    *_required(Integer, "seq", "generation"),
    *_result_columns(),
    Index("results_archive_job", "job_id", "seq", "generation"),
)

attempts = _table(
    "attempts",
    *_key(Uuid, "job_id"),
    *_key(Integer, "seq"),
    *_key(SmallInteger, "n"),
    *_required(Text, "tenant_id", "error"),
    *_nullable(BigInteger, "launch_id"),
    *_times("at"),
    *_required(_Time, "due_at"),
    **_BY_JOB,
)

idempotency_keys = _table(
    "idempotency_keys",
    *_key(Text, "tenant_id", "key"),
    *_required(LargeBinary, "fingerprint"),
    *_required(Uuid, "job_id"),
    *_required(Text, "answer"),
    *_times("created_at"),
    Index("idempotency_keys_age", "created_at"),
    Index("idempotency_keys_job", "job_id"),
)

deletions = _table(
    "deletions",
    *_key(Uuid, "job_id"),
    *_required(Text, "tenant_id"),
    *_required(Integer, "total"),
    *_counts("erased"),
    *_times("deleted_at"),
)

files = _table(
    "files",
    *_key(Uuid, "id"),
    *_required(Text, "tenant_id", "purpose", "filename", "key"),
    *_required(Text, "key_id", default="''"),
    *_required(BigInteger, "bytes"),
    *_required(LargeBinary, "sha256"),
    *_times("created_at"),
    *_nullable(_Time, "expires_at"),
    *_required(Boolean, "complete", default="true"),
    Index("files_expiry", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
)
Index("files_tenant", files.c.tenant_id, files.c.id.desc())

transfers = _table(
    "transfers",
    *_key(Uuid, "job_id"),
    *_key(Text, "kind"),
    *_required(Text, "tenant_id"),
    *_required(Integer, "generation"),
    *_counts("tries", "deaths"),
    *_counts("epoch", type=BigInteger),
    *_nullable(_Time, "claimed_at"),
    *_times("due_at"),
    *_nullable(Text, "last_error"),
    Index("transfers_due", "due_at"),
)

workers = _table(
    "workers",
    _number("incarnation"),
    *_required(Text, "name", "pool", "device", "state"),
    *_required(ARRAY(Text), "models"),
    *_times("started_at", "heartbeat_at"),
    *_nullable(_Time, "watched_at", "ended_at", "drain_asked_at"),
    *_nullable(Text, "died"),
    *_required(Boolean, "death_told", default="false"),
)

worker_models = _table(
    "worker_models",
    *_key(ForeignKey("workers.incarnation", ondelete="CASCADE"), "incarnation"),
    *_key(Text, "model"),
    *_required(Text, "state", "error"),
    *_required(REAL, "memory_mb", "load_ms"),
    *_times("since"),
)

launches = _table(
    "launches",
    *_key(BigInteger, "id"),
    *_required(BigInteger, "incarnation"),
    *_required(Text, "model", "version", "reason"),
    *_required(Integer, "bucket", "items", "calls", "units", "padded_units"),
    *_required(REAL, "predicted_ms", "engine_ms"),
    *_required(_Time, "started_at"),
    *_nullable(REAL, "batch_ms"),
)

tenants = _table(
    "tenants",
    *_key(Text, "tenant_id"),
    *_required(Double, "weight", default="1"),
    *_nullable(Numeric, "soft_cap", "hard_cap"),
    *_times("created_at"),
    *_nullable(_Time, "erased_at"),
    *_nullable(Text, "webhook_url"),
)

api_keys = _table(
    "api_keys",
    *_key(Uuid, "id"),
    *_required(Text, "tenant_id", "name", "hint", "role"),
    Column("hash", LargeBinary, nullable=False, unique=True),
    *_required(ARRAY(Text), "scopes"),
    *_times("created_at"),
    *_nullable(_Time, "expires_at", "revoked_at", "last_used_at"),
    *_nullable(Uuid, "replaced_by"),
)
Index("api_keys_tenant", api_keys.c.tenant_id, api_keys.c.id.desc())

limits = _table(
    "limits",
    *_key(Text, "tenant_id"),
    *_key(Text, "model", "key_id", server_default=text("''")),
    *_nullable(Double, "requests_per_s", "tokens_per_s"),
    *_nullable(Integer, "calls_in_flight", "job_items"),
    *_nullable(BigInteger, "queued_items", "stored_bytes"),
)

audit = _table(
    "audit",
    _number(),
    *_times("at"),
    *_required(Text, "tenant_id", "actor", "act", "target", "detail", "request_id"),
)
Index("audit_tenant", audit.c.tenant_id, audit.c.id.desc())

turns = Table(
    "turns", metadata, *_key(Text, "pool", "tenant_id"), *_required(Double, "time_ms")
)  # fmt: skip

usage = _table(
    "usage",
    *_times("at"),
    *_required(Text, "tenant_id", "kind", "model", "version"),
    _class(),
    *_nullable(Uuid, "job_id"),
    *_nullable(Integer, "start"),
    *_required(BigInteger, "succeeded", "failed", "units", "device_us"),
    *_required(Numeric, "amount"),
    Index("usage_tenant", "tenant_id", "at"),
    Index(
        "usage_calls", "at", "tenant_id", "model", "version", "job_class",
        unique=True, postgresql_where=text("kind = 'calls'"),
    ),
)  # fmt: skip

spend = _table(
    "spend",
    *_required(Text, "tenant_id"),
    *_required(Date, "month"),
    *_required(Numeric, "amount"),
    Index("spend_month", "tenant_id", "month"),
)

spend_told = _table(
    "spend_told",
    *_key(Text, "tenant_id"),
    *_key(Date, "month"),
    *_key(Integer, "percent"),
    *_times("told_at"),
)

webhook_secrets = _table(
    "webhook_secrets",
    _number(),
    *_required(Text, "tenant_id"),
    *_required(LargeBinary, "sealed"),
    *_times("created_at"),
    *_nullable(_Time, "shown_at", "expires_at"),
)
Index("webhook_secrets_tenant", webhook_secrets.c.tenant_id, webhook_secrets.c.id.desc())

webhook_endpoints = _table(
    "webhook_endpoints",
    *_key(Text, "tenant_id", "url"),
    *_required(Integer, "failures"),
    *_times("failed_at"),
    *_nullable(_Time, "open_until", "disabled_at"),
)

webhook_deliveries = _table(
    "webhook_deliveries",
    *_key(Uuid, "id", server_default=text("gen_random_uuid()")),
    *_required(Text, "tenant_id", "url", "type"),
    *_required(JSONB, "about"),
    *_required(Text, "state", default="'pending'"),
    *_nullable(Uuid, "job_id"),
    *_nullable(Integer, "generation", "last_status"),
    *_counts("tries"),
    *_times("due_at", "created_at", "requested_at"),
    *_nullable(_Time, "delivered_at"),
    *_nullable(Text, "last_error"),
    Index("webhook_deliveries_due", "due_at", postgresql_where=text("state = 'pending'")),
    Index("webhook_deliveries_job", "job_id"),
    Index(
        "webhook_deliveries_tenant", "tenant_id", "created_at",
        postgresql_where=text("job_id IS NULL"),
    ),
)  # fmt: skip
