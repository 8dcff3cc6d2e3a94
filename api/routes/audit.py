"""The audit log, for admins."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response

from api.auth import Admin
from api.context import Shared
from api.routes.common import json_response
from api.schemas import NO_NUL, AuditPage
from jobs import views
from jobs.store import audit

router = APIRouter(tags=["admin"])


@router.get("/audit", response_model=AuditPage)
def read_audit(
    shared: Shared,
    caller: Admin,
    tenant: Annotated[
        str, Query(max_length=200, pattern=NO_NUL, description="whose; `*`: everybody's")
    ] = "*",
    after: Annotated[
        int | None, Query(ge=0, lt=1 << 63, description="`next` of the page before")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Response:
    """Every admin act and every verb, the newest first."""
    with shared.acting(tenant) as tx:
        rows = audit.page(tx, tenant, after=after, limit=limit + 1)
    more = rows[limit - 1]["id"] if len(rows) > limit else None
    return json_response({"data": [_entry(row) for row in rows[:limit]], "next": more})


def _entry(row: Any) -> dict[str, Any]:
    told = {"at": views.timestamp(row["at"]), "detail": orjson.loads(row["detail"])}
    names = {"tenant": row["tenant_id"], "actor": row["actor"], "act": row["act"]}
    of = {"target": row["target"], "request_id": row["request_id"]}
    return {"id": row["id"], **told, **names, **of}
