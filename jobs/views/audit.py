"""The audit log as it is shown."""

from typing import Any

import orjson
from sqlalchemy import RowMapping

from jobs.views import jobs


def entry_object(row: RowMapping) -> dict[str, Any]:
    """One act, from a row of `jobs.store.tenants.audit`."""
    return {
        "id": row["id"],
        "at": jobs.timestamp(row["at"]),
        "tenant": row["tenant_id"],
        "actor": row["actor"],
        "act": row["act"],
        "target": row["target"],
        "detail": orjson.loads(row["detail"]),
        "request_id": row["request_id"],
    }
