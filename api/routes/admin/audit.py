"""The audit log, for admins."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.context import Shared
from api.dependencies import Admin
from api.http.responses import json_response
from api.schemas.admin import AuditPage
from api.schemas.common import NO_NUL
from jobs.store.tenants import audit
from jobs.views.audit import entry_object

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
    more = rows[limit - 1].id if len(rows) > limit else None
    return json_response({"data": [entry_object(row) for row in rows[:limit]], "next": more})
