"""Describes the tables of the registry, as jobs/store/tables.py does the others."""

import sqlalchemy as sa

from jobs.store.columns import Time, key, nullable, number, required, table, times

artifacts = table(
    "artifacts",
    *key(sa.Text, "digest"),
    *required(sa.Text, "manifest", "created_by"),
    *required(sa.BigInteger, "bytes"),
    *required(sa.Text, "base", default="''"),
    *required(sa.Text, "state", default="'stored'"),
    *times("created_at", "pushed_at"),
)

artifact_signatures = table(
    "artifact_signatures",
    number(),
    *required(sa.ForeignKey("artifacts.digest", ondelete="CASCADE"), "digest"),
    *required(sa.Text, "bundle", "added_by"),
    *times("added_at"),
    sa.Index("artifact_signatures_digest", "digest"),
)

model_versions = table(
    "model_versions",
    *key(sa.Text, "name", "version"),
    *required(sa.Text, "entry", "created_by"),
    *nullable(sa.ForeignKey("artifacts.digest"), "artifact"),
    *nullable(sa.Text, "probe"),
    *required(sa.Text, "state", default="'active'"),
    *times("created_at"),
    *nullable(Time, "retired_at"),
    sa.Index("model_versions_artifact", "artifact"),
)

model_aliases = table(
    "model_aliases",
    *key(sa.Text, "name", "alias"),
    *required(sa.Text, "version", "updated_by"),
    *nullable(sa.Text, "previous"),
    *times("updated_at"),
    *nullable(Time, "warm_until"),
)

model_routes = table(
    "model_routes",
    *key(sa.Text, "name", "tenant_id"),
    *required(sa.Text, "splits", "salt", "updated_by"),
    *required(sa.Text, "sticky", default="''"),
    *nullable(sa.Text, "shadow"),
    *times("updated_at"),
)

rollouts = table(
    "rollouts",
    *key(sa.Uuid, "id"),
    *required(sa.Text, "name", "stable", "canary", "policy", "salt", "started_by"),
    *required(sa.Text, "state", default="'running'"),
    *required(sa.Text, "sticky", "reason", default="''"),
    *required(sa.Integer, "step", default="0"),
    *times("started_at", "step_at"),
    *nullable(Time, "ended_at"),
)
sa.Index(
    "rollouts_open", rollouts.c.name, unique=True, postgresql_where=sa.text("ended_at IS NULL")
)
sa.Index("rollouts_newest", rollouts.c.name, rollouts.c.started_at.desc())

rollout_events = table(
    "rollout_events",
    number(),
    *required(sa.ForeignKey("rollouts.id", ondelete="CASCADE"), "rollout_id"),
    *times("at"),
    *required(sa.Text, "act"),
    *required(sa.Text, "reason", "actor", default="''"),
    *required(sa.Text, "figures", default="'{}'"),
)
sa.Index("rollout_events_rollout", rollout_events.c.rollout_id, rollout_events.c.id.desc())
