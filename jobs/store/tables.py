"""Describes the tables for SQLAlchemy Core. Migrations make them; a test compares the two.

Columns of one type stand together, not in the order of the database. Check constraints, storage
parameters, rights and policies stand in the migrations alone.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ENUM, JSONB

from jobs.store.columns import (
    Time,
    counts,
    job_class,
    key,
    nullable,
    number,
    required,
    table,
    times,
)
from jobs.store.columns import metadata as metadata
from jobs.store.registry_tables import model_routes as model_routes
from jobs.store.scaling_tables import pool_policies as pool_policies  # and the others there

_OUTCOME = ENUM(
    "succeeded", "failed", "cancelled", "expired", name="outcome", metadata=metadata
)  # fmt: skip
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
_N_ENDED = ("n_succeeded", "n_failed", "n_cancelled", "n_expired")

jobs = table(
    "jobs",
    *key(sa.Uuid, "id"),
    *required(sa.Text, "tenant_id", "model", "version", "state", "params", "metadata"),
    job_class(),
    *required(sa.Integer, "priority", "total"),
    *required(sa.Boolean, "custom_ids"),
    *required(sa.Integer, "generation", default="1"),
    *times("created_at"),
    *nullable(Time, "started_at", "finished_at", "expires_at"),
    *nullable(Time, "queued_at", "cancelling_at", "written_at"),
    *nullable(sa.Double, "expires_in_s"),
    *counts(*_N_ENDED, "n_truncated"),
    *counts("input_bytes", "output_bytes", "archived_bytes", type=sa.BigInteger),
    *required(sa.Boolean, "items_pruned", "results_pruned", default="false"),
    *required(sa.Boolean, "billed", default="true"),
    *required(sa.Text, "key_id", default="''"),
    *required(sa.Text, "dialect", default="'native'"),
    *required(sa.Text, "versioning", default="'pinned'"),
    *nullable(sa.Text, "error", "webhook_url", "asked", "source", "target", "manifest"),
    *nullable(sa.Text, "traceparent", "name", "labels"),
)
sa.Index("jobs_newest", jobs.c.tenant_id, jobs.c.id.desc())
sa.Index("jobs_open", jobs.c.expires_at, postgresql_where=sa.text("finished_at IS NULL"))
sa.Index("jobs_cancelling", jobs.c.id, postgresql_where=sa.text("state = 'cancelling'"))
sa.Index(
    "jobs_routed", jobs.c.model, jobs.c.tenant_id, jobs.c.version,
    postgresql_where=sa.text("versioning = 'routed' AND finished_at IS NULL"),
)  # fmt: skip
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

items = table(
    "items",
    *key(sa.Uuid, "job_id"),
    *key(sa.Integer, "seq"),
    *required(sa.Text, "tenant_id", "input"),
    *nullable(sa.Text, "custom_id", "params", "reply"),
    **_BY_JOB,
)

slices = table(
    "slices",
    *key(sa.Uuid, "job_id"),
    *key(sa.Integer, "start"),
    *required(sa.Integer, "stop", "priority"),
    *required(sa.Text, "tenant_id", "model", "version"),
    *required(sa.Text, "state", default="'ready'"),
    *required(sa.Integer, "inputs", default="1"),
    *times("not_before", "due_at"),
    *nullable(Time, "lease_until", "claimed_at", "finished_at"),
    *nullable(sa.BigInteger, "lease_owner", "worker"),
    *counts("epoch", "deaths", *_N_ENDED, "n_truncated"),
    *counts("output_bytes", type=sa.BigInteger),
    *counts("charged_ms", type=sa.REAL),
    *required(sa.Boolean, "suspect", "retrying", default="false"),
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
        *required(sa.Text, "tenant_id"),
        *required(_OUTCOME, "outcome"),
        *required(sa.SmallInteger, "attempts"),
        *required(sa.Integer, "units"),
        *counts("device_us", type=sa.BigInteger),
        *nullable(sa.REAL, "wait_ms"),
        *nullable(sa.BigInteger, "launch_id"),
        *nullable(sa.Text, "error", "output"),
        *nullable(sa.Integer, *_TOKENS, "truncated"),
        *nullable(sa.LargeBinary, "vector"),
    ]


results = table(
    "results",
    *key(sa.Uuid, "job_id"),
    *key(sa.Integer, "seq"),
    *_result_columns(),
    **_BY_JOB,
)

results_archive = table(
    "results_archive",
    *required(sa.Uuid, "job_id"),
    *required(sa.Integer, "seq", "generation"),
    *_result_columns(),
    sa.Index("results_archive_job", "job_id", "seq", "generation"),
)

attempts = table(
    "attempts",
    *key(sa.Uuid, "job_id"),
    *key(sa.Integer, "seq"),
    *key(sa.SmallInteger, "n"),
    *required(sa.Text, "tenant_id", "error"),
    *nullable(sa.BigInteger, "launch_id"),
    *times("at"),
    *required(Time, "due_at"),
    **_BY_JOB,
)

checkpoints = table(
    "checkpoints",
    *key(sa.Uuid, "job_id"),
    *key(sa.Integer, "seq", "choice", "position"),
    *required(sa.Text, "tenant_id", "text"),
    *required(sa.ARRAY(sa.Integer), "tokens"),
    *nullable(sa.Text, "logprobs", "finish_reason", "stopped_by"),
    *counts("cached_tokens"),
    *counts("device_us", type=sa.BigInteger),
)

responses = table(
    "responses",
    *key(sa.Uuid, "id"),
    *required(sa.Text, "tenant_id", "request", "input"),
    *required(sa.Boolean, "background"),
    *nullable(sa.Uuid, "previous_id"),
    *nullable(sa.Text, "ended"),
    *times("created_at"),
    *required(Time, "expires_at"),
    sa.Index("responses_expiry", "expires_at"),
)
sa.Index("responses_tenant", responses.c.tenant_id, responses.c.id.desc())

idempotency_keys = table(
    "idempotency_keys",
    *key(sa.Text, "tenant_id", "key"),
    *required(sa.LargeBinary, "fingerprint"),
    *required(sa.Uuid, "job_id"),
    *required(sa.Text, "answer"),
    *times("created_at"),
    sa.Index("idempotency_keys_age", "created_at"),
    sa.Index("idempotency_keys_job", "job_id"),
)

deletions = table(
    "deletions",
    *key(sa.Uuid, "job_id"),
    *required(sa.Text, "tenant_id"),
    *required(sa.Integer, "total"),
    *counts("erased"),
    *times("deleted_at"),
)

files = table(
    "files",
    *key(sa.Uuid, "id"),
    *required(sa.Text, "tenant_id", "purpose", "filename", "key"),
    *required(sa.Text, "key_id", default="''"),
    *required(sa.BigInteger, "bytes"),
    *required(sa.LargeBinary, "sha256"),
    *times("created_at"),
    *nullable(Time, "expires_at"),
    *required(sa.Boolean, "complete", default="true"),
    sa.Index("files_expiry", "expires_at", postgresql_where=sa.text("expires_at IS NOT NULL")),
)
sa.Index("files_tenant", files.c.tenant_id, files.c.id.desc())

transfers = table(
    "transfers",
    *key(sa.Uuid, "job_id"),
    *key(sa.Text, "kind"),
    *required(sa.Text, "tenant_id"),
    *required(sa.Integer, "generation"),
    *counts("tries", "deaths", "kills"),
    *counts("epoch", type=sa.BigInteger),
    *nullable(Time, "claimed_at"),
    *times("due_at"),
    *nullable(sa.Text, "last_error"),
    sa.Index("transfers_due", "due_at"),
)

workers = table(
    "workers",
    number("incarnation"),
    *required(sa.Text, "name", "pool", "device", "state"),
    *required(sa.ARRAY(sa.Text), "models"),
    *times("started_at", "heartbeat_at"),
    *nullable(Time, "watched_at", "ended_at", "drain_asked_at"),
    *nullable(sa.Text, "died", "device_error"),
    *required(sa.Boolean, "death_told", default="false"),
    *required(sa.REAL, "spot_notice_s", default="0"),
    *nullable(sa.Text, "reclaimed_by"),
)

worker_models = table(
    "worker_models",
    *key(sa.ForeignKey("workers.incarnation", ondelete="CASCADE"), "incarnation"),
    *key(sa.Text, "model"),
    *required(sa.Text, "state", "error"),
    *required(sa.REAL, "memory_mb", "load_ms"),
    *times("since"),
)

launches = table(
    "launches",
    *key(sa.BigInteger, "id"),
    *required(sa.BigInteger, "incarnation"),
    *required(sa.Text, "model", "version", "reason"),
    *required(sa.Integer, "bucket", "items", "calls", "units", "padded_units"),
    *required(sa.REAL, "predicted_ms", "engine_ms"),
    *required(Time, "started_at"),
    *nullable(sa.REAL, "batch_ms"),
)

tenants = table(
    "tenants",
    *key(sa.Text, "tenant_id"),
    *required(sa.Double, "weight", default="1"),
    *nullable(sa.Numeric, "soft_cap", "hard_cap"),
    *times("created_at"),
    *nullable(Time, "erased_at"),
    *nullable(sa.Text, "webhook_url"),
)

api_keys = table(
    "api_keys",
    *key(sa.Uuid, "id"),
    *required(sa.Text, "tenant_id", "name", "hint", "role"),
    sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
    *required(sa.ARRAY(sa.Text), "scopes"),
    *times("created_at"),
    *nullable(Time, "expires_at", "revoked_at", "last_used_at"),
    *nullable(sa.Uuid, "replaced_by"),
)
sa.Index("api_keys_tenant", api_keys.c.tenant_id, api_keys.c.id.desc())

limits = table(
    "limits",
    *key(sa.Text, "tenant_id"),
    *key(sa.Text, "model", "key_id", server_default=sa.text("''")),
    *nullable(sa.Double, "requests_per_s", "tokens_per_s", "tokens_per_min"),
    *nullable(sa.Integer, "calls_in_flight", "job_items"),
    *nullable(sa.BigInteger, "queued_items", "stored_bytes"),
)

audit = table(
    "audit",
    number(),
    *times("at"),
    *required(sa.Text, "tenant_id", "actor", "act", "target", "detail", "request_id"),
)
sa.Index("audit_tenant", audit.c.tenant_id, audit.c.id.desc())

audit_chain = table(
    "audit_chain",
    *key(sa.BigInteger, "n"),
    sa.Column("entry", sa.BigInteger, nullable=False, unique=True),
    *required(sa.LargeBinary, "hash"),
)

ended_sessions = table("ended_sessions", *key(sa.Text, "id"), *required(Time, "ends_at"))

turns = sa.Table(
    "turns", metadata, *key(sa.Text, "pool", "tenant_id"), *required(sa.Double, "time_ms")
)  # fmt: skip

next_tenants = table(
    "next_tenants",
    *key(sa.Text, "pool", "model", "version"),
    *required(sa.ARRAY(sa.Text), "tenants"),
    *required(sa.Double, "until_ms"),
    *times("listed_at"),
)

usage = table(
    "usage",
    *times("at"),
    *required(sa.Text, "tenant_id", "kind", "model", "version"),
    job_class(),
    *nullable(sa.Uuid, "job_id"),
    *nullable(sa.Integer, "start"),
    *required(sa.BigInteger, "succeeded", "failed", "units", "device_us"),
    *counts(*_TOKENS, type=sa.BigInteger),
    *required(sa.Numeric, "amount"),
    sa.Index("usage_tenant", "tenant_id", "at"),
    sa.Index(
        "usage_calls", "at", "tenant_id", "model", "version", "job_class",
        unique=True, postgresql_where=sa.text("kind = 'calls'"),
    ),
)  # fmt: skip

spend = table(
    "spend",
    *required(sa.Text, "tenant_id"),
    *required(sa.Date, "month"),
    *required(sa.Numeric, "amount"),
    sa.Index("spend_month", "tenant_id", "month"),
)

spend_told = table(
    "spend_told",
    *key(sa.Text, "tenant_id"),
    *key(sa.Date, "month"),
    *key(sa.Integer, "percent"),
    *times("told_at"),
)

webhook_secrets = table(
    "webhook_secrets",
    number(),
    *required(sa.Text, "tenant_id"),
    *required(sa.LargeBinary, "sealed"),
    *times("created_at"),
    *nullable(Time, "shown_at", "expires_at"),
)
sa.Index("webhook_secrets_tenant", webhook_secrets.c.tenant_id, webhook_secrets.c.id.desc())

webhook_endpoints = table(
    "webhook_endpoints",
    *key(sa.Text, "tenant_id", "url"),
    *required(sa.Integer, "failures"),
    *times("failed_at"),
    *nullable(Time, "open_until", "disabled_at"),
)

webhook_deliveries = table(
    "webhook_deliveries",
    *key(sa.Uuid, "id", server_default=sa.text("gen_random_uuid()")),
    *required(sa.Text, "tenant_id", "url", "type"),
    *required(JSONB, "about"),
    *required(sa.Text, "state", default="'pending'"),
    *nullable(sa.Uuid, "job_id"),
    *nullable(sa.Integer, "generation", "last_status"),
    *counts("tries"),
    *times("due_at", "created_at", "requested_at"),
    *nullable(Time, "delivered_at"),
    *nullable(sa.Text, "last_error"),
    sa.Index("webhook_deliveries_due", "due_at", postgresql_where=sa.text("state = 'pending'")),
    sa.Index("webhook_deliveries_job", "job_id"),
    sa.Index(
        "webhook_deliveries_tenant", "tenant_id", "created_at",
        postgresql_where=sa.text("job_id IS NULL"),
    ),
)  # fmt: skip
