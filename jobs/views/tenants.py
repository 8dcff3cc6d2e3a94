"""Keys, tenants and erasures as JSON objects."""

from typing import Any

from sqlalchemy import RowMapping

from jobs import ids
from jobs.views import jobs


def key_object(row: RowMapping) -> dict[str, Any]:
    """A key as it is shown: never the key itself."""
    replaced_by = row["replaced_by"]
    return {
        "id": ids.show("key", row["id"]),
        "tenant": row["tenant_id"],
        "name": row["name"],
        "hint": row["hint"],
        "role": row["role"],
        "scopes": row["scopes"],
        **{
            name: jobs.timestamp(row[name])
            for name in ("created_at", "expires_at", "revoked_at", "last_used_at")
        },
        "replaced_by": ids.show("key", replaced_by) if replaced_by else None,
    }


def tenant_object(row: RowMapping) -> dict[str, Any]:
    caps = {name: float(cap) if (cap := row[name]) is not None else None for name in _CAPS}
    return {
        "tenant": row["tenant_id"],
        "weight": row["weight"],
        **caps,
        "created_at": jobs.timestamp(row["created_at"]),
        "erased_at": jobs.timestamp(row["erased_at"]),
    }


_CAPS = ("soft_cap", "hard_cap")


def erasure_object(tenant: str, row: RowMapping) -> dict[str, Any]:
    """How far an erasure is, from a row of `departures.left`."""
    kinds = ("open", "jobs", "erasing", "items", "others")
    left = {kind: int(row[kind]) for kind in kinds}
    at = jobs.timestamp(row["erased_at"])
    return {"tenant": tenant, "erased_at": at, "complete": not any(left.values()), "left": left}
