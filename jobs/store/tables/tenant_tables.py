"""Tables of tenants, their keys and limits, the audit log and the ledger."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    Date,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Numeric,
    Table,
    Text,
    Uuid,
    text,
)

from jobs.store.tables.columns import EMPTY, NOW, Time, column, key, metadata

tenants = Table(
    "tenants",
    metadata,
    key("tenant_id", Text),
    column("weight", Double, text("1")),
    Column("soft_cap", Numeric),
    Column("hard_cap", Numeric),
    column("created_at", Time, NOW),
    Column("erased_at", Time),
    Column("webhook_url", Text),
)

api_keys = Table(
    "api_keys",
    metadata,
    key("id", Uuid),
    column("tenant_id", Text),
    column("name", Text),
    column("hint", Text),
    column("hash", LargeBinary, unique=True),
    column("role", Text),
    column("scopes", ARRAY(Text)),
    column("created_at", Time, NOW),
    Column("expires_at", Time),
    Column("revoked_at", Time),
    Column("last_used_at", Time),
    Column("replaced_by", Uuid),
)
Index("api_keys_tenant", api_keys.c.tenant_id, api_keys.c.id.desc())

limits = Table(
    "limits",
    metadata,
    key("tenant_id", Text),
    key("model", Text, server_default=EMPTY),
    key("key_id", Text, server_default=EMPTY),
    Column("requests_per_s", Double),
    Column("tokens_per_s", Double),
    Column("calls_in_flight", Integer),
    Column("queued_items", BigInteger),
    Column("stored_bytes", BigInteger),
    Column("job_items", Integer),
)

audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    column("at", Time, NOW),
    column("tenant_id", Text),
    column("actor", Text),
    column("act", Text),
    column("target", Text),
    column("detail", Text),
    column("request_id", Text),
)
Index("audit_tenant", audit.c.tenant_id, audit.c.id.desc())

turns = Table(
    "turns",
    metadata,
    key("pool", Text),
    key("tenant_id", Text),
    column("time_ms", Double),
)

usage = Table(
    "usage",
    metadata,
    column("at", Time, NOW),
    column("tenant_id", Text),
    column("kind", Text),
    Column("job_id", Uuid),
    Column("start", Integer),
    column("model", Text),
    column("version", Text),
    column("class", Text, key="job_class"),
    column("succeeded", BigInteger),
    column("failed", BigInteger),
    column("units", BigInteger),
    column("device_us", BigInteger),
    column("amount", Numeric),
    Index("usage_tenant", "tenant_id", "at"),
    Index(
        "usage_calls", "at", "tenant_id", "model", "version", "job_class",
        unique=True, postgresql_where=text("kind = 'calls'"),
    ),
)  # fmt: skip

spend = Table(
    "spend",
    metadata,
    column("tenant_id", Text),
    column("month", Date),
    column("amount", Numeric),
    Index("spend_month", "tenant_id", "month"),
)

spend_told = Table(
    "spend_told",
    metadata,
    key("tenant_id", Text),
    key("month", Date),
    key("percent", Integer),
    column("told_at", Time, NOW),
)
