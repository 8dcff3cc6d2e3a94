"""Describes the tables for SQLAlchemy Core. Migrations make them; a test compares the two.

Columns of one type stand together, not in the order of the database. Check constraints, storage
parameters, rights and policies stand in the migrations alone.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ENUM, JSONB, TIMESTAMP

metadata = sa.MetaData()
_Time = TIMESTAMP(timezone=True)
_OUTCOME = ENUM(
    "succeeded", "failed", "cancelled", "expired", name="outcome", metadata=metadata
)  # fmt: skip
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
_N_ENDED = ("n_succeeded", "n_failed", "n_cancelled", "n_expired")


def _table(name: str, *parts: Any, **options: Any) -> sa.Table:
    return sa.Table(name, metadata, *parts, **options)


def _nullable(type: Any, *names: str) -> Sequence[sa.Column[Any]]:
    return [sa.Column(name, type) for name in names]


def _required(type: Any, *names: str, default: str | None = None) -> Sequence[sa.Column[Any]]:
    """Columns that are never null. default: SQL."""
    server_default = None if default is None else sa.text(default)
    return [sa.Column(name, type, nullable=False, server_default=server_default) for name in names]


def _times(*names: str) -> Sequence[sa.Column[Any]]:
    """Times that are set when the row is inserted."""
    return _required(_Time, *names, default="now()")


def _counts(*names: str, type: Any = sa.Integer) -> Sequence[sa.Column[Any]]:
    """Numbers that begin at 0."""
    return _required(type, *names, default="0")


def _key(type: Any, *names: str, **options: Any) -> Sequence[sa.Column[Any]]:
    """Columns of the primary key."""
    return [
        sa.Column(name, type, primary_key=True, autoincrement=False, **options) for name in names
    ]


def _number(name: str = "id") -> sa.Column[Any]:
    """A primary key that the database counts up."""
    return sa.Column(name, sa.BigInteger, sa.Identity(always=True), primary_key=True)


def _class() -> sa.Column[Any]:
    return sa.Column("class", sa.Text, key="job_class", nullable=False)


jobs = _table(
    "jobs",
    *_key(sa.Uuid, "id"),
    *_required(sa.Text, "tenant_id", "model", "version", "state", "params", "metadata"),
    _class(),
    *_required(sa.Integer, "priority", "total"),
    *_required(sa.Boolean, "custom_ids"),
    *_required(sa.Integer, "generation", default="1"),
    *_times("created_at"),
    *_nullable(_Time, "started_at", "finished_at", "expires_at"),
    *_nullable(_Time, "queued_at", "cancelling_at", "written_at"),
    *_nullable(sa.Double, "expires_in_s"),
    *_counts(*_N_ENDED),
    *_counts("input_bytes", "output_bytes", "archived_bytes", type=sa.BigInteger),
    *_required(sa.Boolean, "items_pruned", "results_pruned", default="false"),
    *_required(sa.Boolean, "billed", default="true"),
    *_required(sa.Text, "key_id", default="''"),
    *_required(sa.Text, "dialect", default="'native'"),
    *_nullable(sa.Text, "error", "webhook_url", "asked", "source", "target", "manifest"),
    *_nullable(sa.Text, "traceparent"),
)
sa.Index("jobs_newest", jobs.c.tenant_id, jobs.c.id.desc())
sa.Index("jobs_open", jobs.c.expires_at, postgresql_where=sa.text("finished_at IS NULL"))
sa.Index("jobs_cancelling", jobs.c.id, postgresql_where=sa.text("state = 'cancelling'"))
sa.Index("jobs_with_items", jobs.c.id, postgresql_where=sa.text("NOT items_pruned"))
sa.Index("jobs_with_results", jobs.c.id, postgresql_where=sa.text("NOT results_pruned"))
sa.Index(
    "jobs_stored",
    jobs.c.tenant_id,
    postgresql_include=[
        "model", "key_id", "input_bytes", "output_bytes", "items_pruned", "results_pruned",
    ],
    postgresql_where=sa.text("NOT (items_pruned AND results_pruned)"),
)  # fmt: skip

_BY_JOB: dict[str, Any] = {"postgresql_partition_by": "RANGE (job_id)"}

items = _table(
    "items",
    *_key(sa.Uuid, "job_id"),
    *_key(sa.Integer, "seq"),
    *_required(sa.Text, "tenant_id", "input"),
    *_nullable(sa.Text, "custom_id", "params", "reply"),
    **_BY_JOB,
)

slices = _table(
    "slices",
    *_key(sa.Uuid, "job_id"),
    *_key(sa.Integer, "start"),
    *_required(sa.Integer, "stop", "priority"),
    *_required(sa.Text, "tenant_id", "model", "version"),
    *_required(sa.Text, "state", default="'ready'"),
    *_required(sa.Integer, "inputs", default="1"),
    *_times("not_before", "due_at"),
    *_nullable(_Time, "lease_until", "claimed_at", "finished_at"),
    *_nullable(sa.BigInteger, "lease_owner", "worker"),
    *_counts("epoch", "deaths", *_N_ENDED),
    *_counts("output_bytes", type=sa.BigInteger),
    *_counts("charged_ms", type=sa.REAL),
    *_required(sa.Boolean, "suspect", "retrying", default="false"),
)
for _name, _where in (
    ("slices_ready", "state = 'ready' AND NOT suspect"),
    ("slices_suspect", "state = 'ready' AND suspect"),
):
    sa.Index(
        _name, slices.c.model, slices.c.version, slices.c.tenant_id, slices.c.priority.desc(),
        slices.c.due_at, slices.c.job_id, slices.c.start, postgresql_where=sa.text(_where),
    )  # fmt: skip
sa.Index(
    "slices_open", slices.c.job_id, slices.c.start, postgresql_where=sa.text("state <> 'done'")
)
sa.Index("slices_leased", slices.c.lease_until, postgresql_where=sa.text("state = 'leased'"))
sa.Index(
    "slices_of_tenant",
    slices.c.tenant_id,
    slices.c.finished_at,
    postgresql_include=["model", "start", "stop", *_N_ENDED],
)


def _result_columns() -> Sequence[sa.Column[Any]]:
    """Columns of a result, its key aside."""
    return [
        *_required(sa.Text, "tenant_id"),
        *_required(_OUTCOME, "outcome"),
        *_required(sa.SmallInteger, "attempts"),
        *_required(sa.Integer, "units"),
        *_counts("device_us", type=sa.BigInteger),
        *_nullable(sa.REAL, "wait_ms"),
        *_nullable(sa.BigInteger, "launch_id"),
        *_nullable(sa.Text, "error", "output"),
        *_nullable(sa.Integer, *_TOKENS),
    ]


results = _table(
    "results",
    *_key(sa.Uuid, "job_id"),
    *_key(sa.Integer, "seq"),
    *_result_columns(),
    **_BY_JOB,
)

results_archive = _table(
    "results_archive",
    *_required(sa.Uuid, "job_id"),
    *_required(sa.Integer, "seq", "generation"),
    *_result_columns(),
    sa.Index("results_archive_job", "job_id", "seq", "generation"),
)

attempts = _table(
    "attempts",
    *_key(sa.Uuid, "job_id"),
    *_key(sa.Integer, "seq"),
    *_key(sa.SmallInteger, "n"),
    *_required(sa.Text, "tenant_id", "error"),
    *_nullable(sa.BigInteger, "launch_id"),
    *_times("at"),
    *_required(_Time, "due_at"),
    **_BY_JOB,
)

idempotency_keys = _table(
    "idempotency_keys",
    *_key(sa.Text, "tenant_id", "key"),
    *_required(sa.LargeBinary, "fingerprint"),
    *_required(sa.Uuid, "job_id"),
    *_required(sa.Text, "answer"),
    *_times("created_at"),
    sa.Index("idempotency_keys_age", "created_at"),
    sa.Index("idempotency_keys_job", "job_id"),
)

deletions = _table(
    "deletions",
    *_key(sa.Uuid, "job_id"),
    *_required(sa.Text, "tenant_id"),
    *_required(sa.Integer, "total"),
    *_counts("erased"),
    *_times("deleted_at"),
)

files = _table(
    "files",
    *_key(sa.Uuid, "id"),
    *_required(sa.Text, "tenant_id", "purpose", "filename", "key"),
    *_required(sa.Text, "key_id", default="''"),
    *_required(sa.BigInteger, "bytes"),
    *_required(sa.LargeBinary, "sha256"),
    *_times("created_at"),
    *_nullable(_Time, "expires_at"),
    *_required(sa.Boolean, "complete", default="true"),
    sa.Index("files_expiry", "expires_at", postgresql_where=sa.text("expires_at IS NOT NULL")),
)
sa.Index("files_tenant", files.c.tenant_id, files.c.id.desc())

transfers = _table(
    "transfers",
    *_key(sa.Uuid, "job_id"),
    *_key(sa.Text, "kind"),
    *_required(sa.Text, "tenant_id"),
    *_required(sa.Integer, "generation"),
    *_counts("tries", "deaths", "kills"),
    *_counts("epoch", type=sa.BigInteger),
    *_nullable(_Time, "claimed_at"),
    *_times("due_at"),
    *_nullable(sa.Text, "last_error"),
    sa.Index("transfers_due", "due_at"),
)

workers = _table(
    "workers",
    _number("incarnation"),
    *_required(sa.Text, "name", "pool", "device", "state"),
    *_required(sa.ARRAY(sa.Text), "models"),
    *_times("started_at", "heartbeat_at"),
    *_nullable(_Time, "watched_at", "ended_at", "drain_asked_at"),
    *_nullable(sa.Text, "died", "device_error"),
    *_required(sa.Boolean, "death_told", default="false"),
)

worker_models = _table(
    "worker_models",
    *_key(sa.ForeignKey("workers.incarnation", ondelete="CASCADE"), "incarnation"),
    *_key(sa.Text, "model"),
    *_required(sa.Text, "state", "error"),
    *_required(sa.REAL, "memory_mb", "load_ms"),
    *_times("since"),
)

launches = _table(
    "launches",
    *_key(sa.BigInteger, "id"),
    *_required(sa.BigInteger, "incarnation"),
    *_required(sa.Text, "model", "version", "reason"),
    *_required(sa.Integer, "bucket", "items", "calls", "units", "padded_units"),
    *_required(sa.REAL, "predicted_ms", "engine_ms"),
    *_required(_Time, "started_at"),
    *_nullable(sa.REAL, "batch_ms"),
)

tenants = _table(
    "tenants",
    *_key(sa.Text, "tenant_id"),
    *_required(sa.Double, "weight", default="1"),
    *_nullable(sa.Numeric, "soft_cap", "hard_cap"),
    *_times("created_at"),
    *_nullable(_Time, "erased_at"),
    *_nullable(sa.Text, "webhook_url"),
)

api_keys = _table(
    "api_keys",
    *_key(sa.Uuid, "id"),
    *_required(sa.Text, "tenant_id", "name", "hint", "role"),
    sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
    *_required(sa.ARRAY(sa.Text), "scopes"),
    *_times("created_at"),
    *_nullable(_Time, "expires_at", "revoked_at", "last_used_at"),
    *_nullable(sa.Uuid, "replaced_by"),
)
sa.Index("api_keys_tenant", api_keys.c.tenant_id, api_keys.c.id.desc())

limits = _table(
    "limits",
    *_key(sa.Text, "tenant_id"),
    *_key(sa.Text, "model", "key_id", server_default=sa.text("''")),
    *_nullable(sa.Double, "requests_per_s", "tokens_per_s", "tokens_per_min"),
    *_nullable(sa.Integer, "calls_in_flight", "job_items"),
    *_nullable(sa.BigInteger, "queued_items", "stored_bytes"),
)

audit = _table(
    "audit",
    _number(),
    *_times("at"),
    *_required(sa.Text, "tenant_id", "actor", "act", "target", "detail", "request_id"),
)
sa.Index("audit_tenant", audit.c.tenant_id, audit.c.id.desc())

audit_chain = _table(
    "audit_chain",
    *_key(sa.BigInteger, "n"),
    sa.Column("entry", sa.BigInteger, nullable=False, unique=True),
    *_required(sa.LargeBinary, "hash"),
)

ended_sessions = _table("ended_sessions", *_key(sa.Text, "id"), *_required(_Time, "ends_at"))

turns = sa.Table(
    "turns", metadata, *_key(sa.Text, "pool", "tenant_id"), *_required(sa.Double, "time_ms")
)  # fmt: skip

next_tenants = _table(
    "next_tenants",
    *_key(sa.Text, "pool", "model", "version"),
    *_required(sa.ARRAY(sa.Text), "tenants"),
    *_required(sa.Double, "until_ms"),
    *_times("listed_at"),
)

usage = _table(
    "usage",
    *_times("at"),
    *_required(sa.Text, "tenant_id", "kind", "model", "version"),
    _class(),
    *_nullable(sa.Uuid, "job_id"),
    *_nullable(sa.Integer, "start"),
    *_required(sa.BigInteger, "succeeded", "failed", "units", "device_us"),
    *_counts(*_TOKENS, type=sa.BigInteger),
    *_required(sa.Numeric, "amount"),
    sa.Index("usage_tenant", "tenant_id", "at"),
    sa.Index(
        "usage_calls", "at", "tenant_id", "model", "version", "job_class",
        unique=True, postgresql_where=sa.text("kind = 'calls'"),
    ),
)  # fmt: skip

spend = _table(
    "spend",
    *_required(sa.Text, "tenant_id"),
    *_required(sa.Date, "month"),
    *_required(sa.Numeric, "amount"),
    sa.Index("spend_month", "tenant_id", "month"),
)

spend_told = _table(
    "spend_told",
    *_key(sa.Text, "tenant_id"),
    *_key(sa.Date, "month"),
    *_key(sa.Integer, "percent"),
    *_times("told_at"),
)

webhook_secrets = _table(
    "webhook_secrets",
    _number(),
    *_required(sa.Text, "tenant_id"),
    *_required(sa.LargeBinary, "sealed"),
    *_times("created_at"),
    *_nullable(_Time, "shown_at", "expires_at"),
)
sa.Index("webhook_secrets_tenant", webhook_secrets.c.tenant_id, webhook_secrets.c.id.desc())

webhook_endpoints = _table(
    "webhook_endpoints",
    *_key(sa.Text, "tenant_id", "url"),
    *_required(sa.Integer, "failures"),
    *_times("failed_at"),
    *_nullable(_Time, "open_until", "disabled_at"),
)

webhook_deliveries = _table(
    "webhook_deliveries",
    *_key(sa.Uuid, "id", server_default=sa.text("gen_random_uuid()")),
    *_required(sa.Text, "tenant_id", "url", "type"),
    *_required(JSONB, "about"),
    *_required(sa.Text, "state", default="'pending'"),
    *_nullable(sa.Uuid, "job_id"),
    *_nullable(sa.Integer, "generation", "last_status"),
    *_counts("tries"),
    *_times("due_at", "created_at", "requested_at"),
    *_nullable(_Time, "delivered_at"),
    *_nullable(sa.Text, "last_error"),
    sa.Index("webhook_deliveries_due", "due_at", postgresql_where=sa.text("state = 'pending'")),
    sa.Index("webhook_deliveries_job", "job_id"),
    sa.Index(
        "webhook_deliveries_tenant", "tenant_id", "created_at",
        postgresql_where=sa.text("job_id IS NULL"),
    ),
)  # fmt: skip
