"""Tables of webhooks."""

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from jobs.store.tables.columns import NOW, ZERO, Time, column, key, metadata

webhook_secrets = Table(
    "webhook_secrets",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    column("tenant_id", Text),
    column("sealed", LargeBinary),
    column("created_at", Time, NOW),
    Column("shown_at", Time),
    Column("expires_at", Time),
)
Index("webhook_secrets_tenant", webhook_secrets.c.tenant_id, webhook_secrets.c.id.desc())

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    key("tenant_id", Text),
    key("url", Text),
    column("failures", Integer),
    column("failed_at", Time, NOW),
    Column("open_until", Time),
    Column("disabled_at", Time),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    key("id", Uuid, server_default=text("gen_random_uuid()")),
    column("tenant_id", Text),
    Column("job_id", Uuid),
    Column("generation", Integer),
    column("url", Text),
    column("type", Text),
    column("about", JSONB),
    column("state", Text, text("'pending'")),
    column("tries", Integer, ZERO),
    column("due_at", Time, NOW),
    column("created_at", Time, NOW),
    column("requested_at", Time, NOW),
    Column("delivered_at", Time),
    Column("last_status", Integer),
    Column("last_error", Text),
    Index("webhook_deliveries_due", "due_at", postgresql_where=text("state = 'pending'")),
    Index("webhook_deliveries_job", "job_id"),
    Index(
        "webhook_deliveries_tenant", "tenant_id", "created_at",
        postgresql_where=text("job_id IS NULL"),
    ),
)  # fmt: skip
