"""JSON of the audit log."""

from typing import Any

import orjson

from jobs.store.tenants.audit import AuditEntry
from jobs.views import jobs


def entry_object(entry: AuditEntry) -> dict[str, Any]:
    """One entry as JSON object."""
    return {
        "id": entry.id,
        "at": jobs.timestamp(entry.at),
        "tenant": entry.tenant_id,
        "actor": entry.actor,
        "act": entry.act,
        "target": entry.target,
        "detail": orjson.loads(entry.detail),
        "request_id": entry.request_id,
    }
