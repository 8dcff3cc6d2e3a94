"""Keys, tenants and erasures as JSON objects."""

from dataclasses import asdict
from decimal import Decimal
from typing import Any

from jobs import ids
from jobs.store.tenants.api_keys import KeyRow
from jobs.store.tenants.erasure import Remaining
from jobs.store.tenants.tenants import TenantRow
from jobs.views import jobs


def key_object(row: KeyRow) -> dict[str, Any]:
    """A key as it is shown: never the key itself."""
    return {
        "id": ids.show("key", row.id),
        "tenant": row.tenant_id,
        "name": row.name,
        "hint": row.hint,
        "role": row.role,
        "scopes": row.scopes,
        "created_at": jobs.timestamp(row.created_at),
        "expires_at": jobs.timestamp(row.expires_at),
        "revoked_at": jobs.timestamp(row.revoked_at),
        "last_used_at": jobs.timestamp(row.last_used_at),
        "replaced_by": ids.show("key", row.replaced_by) if row.replaced_by else None,
    }


def tenant_object(row: TenantRow) -> dict[str, Any]:
    """A tenant as admins see it."""
    return {
        "tenant": row.tenant_id,
        "weight": row.weight,
        "soft_cap": _amount(row.soft_cap),
        "hard_cap": _amount(row.hard_cap),
        "created_at": jobs.timestamp(row.created_at),
        "erased_at": jobs.timestamp(row.erased_at),
    }


def _amount(cap: Decimal | None) -> float | None:
    return None if cap is None else float(cap)


def erasure_object(tenant: str, remaining: Remaining) -> dict[str, Any]:
    """Progress of an erasure."""
    left = asdict(remaining)
    at = jobs.timestamp(left.pop("erased_at"))
    left = {kind: int(count) for kind, count in left.items()}
    return {"tenant": tenant, "erased_at": at, "complete": not any(left.values()), "left": left}
