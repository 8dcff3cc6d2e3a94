"""Describes the tables of the autoscaler, preparation, labels, figures and conversations, as
tables.py does."""

import sqlalchemy as sa

from jobs.store.columns import Time, counts, key, nullable, number, required, table, times

pool_policies = table(
    "pool_policies",
    *key(sa.Text, "pool"),
    *required(sa.Text, "policy", "updated_by"),
    *required(sa.Boolean, "paused", default="false"),
    *nullable(sa.Integer, "desired"),
    *required(sa.Text, "reason", default="''"),
    *required(sa.Text, "state", default="'{}'"),
    *times("updated_at"),
)

scale_events = table(
    "scale_events",
    number(),
    *required(sa.Text, "pool", "act", "actor"),
    *times("at"),
    *nullable(sa.Integer, "desired"),
    *required(sa.Text, "reason", default="''"),
    *required(sa.Text, "figures", default="'{}'"),
)
sa.Index("scale_events_pool", scale_events.c.pool, scale_events.c.id.desc())

pool_arrivals = table(
    "pool_arrivals",
    *key(sa.Text, "pool"),
    *key(sa.BigInteger, "bin"),
    *required(sa.Double, "work"),
    *required(sa.Integer, "samples", default="1"),
)

prepared = table(
    "prepared",
    *key(sa.Uuid, "job_id"),
    *key(sa.Integer, "seq"),
    *required(sa.Text, "tenant_id", "version", "place"),
    prefixes=["UNLOGGED"],
)

job_labels = table(
    "job_labels",
    sa.Column("job_id", sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    *key(sa.Text, "key"),
    *required(sa.Text, "value", "tenant_id"),
)
sa.Index(
    "job_labels_newest", job_labels.c.tenant_id, job_labels.c.key, job_labels.c.value,
    job_labels.c.job_id.desc(),
)  # fmt: skip

figures = table(
    "figures",
    *key(sa.Text, "subject"),
    *key(sa.Integer, "step"),
    *key(Time, "at"),
    *nullable(
        sa.REAL, "calls_s", "items_s", "tokens_s", "refused_s", "failed_s", "waiting", "busy",
        "p50_s", "p95_s",
    ),
    sa.Index("figures_age", "step", "at"),
)  # fmt: skip

conversations = table(
    "conversations",
    *key(sa.Uuid, "id"),
    *required(sa.Text, "tenant_id", "metadata"),
    *counts("bytes", "next_place", type=sa.BigInteger),
    *times("created_at"),
    *required(Time, "expires_at"),
    sa.Index("conversations_expiry", "expires_at"),
)
sa.Index("conversations_tenant", conversations.c.tenant_id, conversations.c.id.desc())

conversation_items = table(
    "conversation_items",
    sa.Column(
        "conversation_id", sa.ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True
    ),
    *key(sa.BigInteger, "place"),
    *required(sa.Text, "tenant_id", "item_id", "item"),
    *times("created_at"),
    sa.Index("conversation_items_id", "conversation_id", "item_id", unique=True),
)

conversation_turns = table(
    "conversation_turns",
    sa.Column(
        "conversation_id", sa.ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True
    ),
    *key(sa.Uuid, "response_id"),
    *required(sa.Text, "tenant_id"),
)
