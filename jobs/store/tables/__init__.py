"""Describes the tables for SQLAlchemy Core. Migrations make them; a test compares the two.

Check constraints, storage parameters, rights and policies stand in the migrations alone.
"""

from jobs.store.tables.columns import metadata
from jobs.store.tables.job_tables import (
    attempts,
    deletions,
    files,
    idempotency_keys,
    items,
    jobs,
    results,
    results_archive,
    slices,
    transfers,
)
from jobs.store.tables.tenant_tables import (
    api_keys,
    audit,
    limits,
    spend,
    spend_told,
    tenants,
    turns,
    usage,
)
from jobs.store.tables.webhook_tables import webhook_deliveries, webhook_endpoints, webhook_secrets
from jobs.store.tables.worker_tables import launches, worker_models, workers

__all__ = [
    "api_keys",
    "attempts",
    "audit",
    "deletions",
    "files",
    "idempotency_keys",
    "items",
    "jobs",
    "launches",
    "limits",
    "metadata",
    "results",
    "results_archive",
    "slices",
    "spend",
    "spend_told",
    "tenants",
    "transfers",
    "turns",
    "usage",
    "webhook_deliveries",
    "webhook_endpoints",
    "webhook_secrets",
    "worker_models",
    "workers",
]
