"""The audit log, for admins."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.context import ContextDep
from api.dependencies import Admin
from api.schemas.admin import AuditPage
from api.schemas.common import NO_NUL
from jobs.store.tenants import audit
from jobs.views.audit import entry_object

router = APIRouter(tags=["admin"])


@router.get("/audit")
def read_audit(
    context: ContextDep,
    caller: Admin,
    tenant: Annotated[
        str,
        Query(max_length=200, pattern=NO_NUL, description="owner of the targets; `*`: all tenants"),
    ] = "*",
    after: Annotated[
        int | None, Query(ge=0, lt=1 << 63, description="`next` of the page before")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> AuditPage:
    """Lists admin acts, verbs on jobs and reads of other tenants' payloads, newest first."""
    with context.acting(tenant) as tx:
        rows = audit.page(tx, tenant, after=after, limit=limit + 1)
    more = rows[limit - 1].id if len(rows) > limit else None
    return AuditPage.model_validate({"data": map(entry_object, rows[:limit]), "next": more})
