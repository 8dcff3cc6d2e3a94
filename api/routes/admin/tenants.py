"""Tenants: share, spend caps and erasure, for admins."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from api.auth import audit
from api.context import ContextDep
from api.dependencies import Admin
from api.schemas import common
from api.schemas.admin import Erasure, Tenant, TenantPage, TenantTerms
from jobs.api_keys import TENANT
from jobs.errors import Conflict
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import erasure
from jobs.store.tenants import tenants as store
from jobs.views.tenants import erasure_object, tenant_object

router = APIRouter(tags=["tenants"])

TenantName = Annotated[str, Path(description="its name", pattern=TENANT, examples=[common.TENANT])]


@router.get("/tenants")
def list_tenants(
    context: ContextDep,
    caller: Admin,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[
        str | None, Query(description="`next` of the page before", pattern=TENANT)
    ] = None,
) -> TenantPage:
    """Lists tenants by name: all that have had a key, or terms of their own."""
    with context.acting(EVERYBODY) as tx:
        rows = store.page(tx, EVERYBODY, after or "", limit + 1)
    data = [tenant_object(row) for row in rows[:limit]]
    more = data[-1]["tenant"] if len(rows) > limit else None
    return TenantPage.model_validate({"data": data, "next": more})


@router.get("/tenants/{tenant}")
def get_tenant(context: ContextDep, caller: Admin, tenant: TenantName) -> Tenant:
    """Returns a tenant's terms."""
    with context.acting(tenant) as tx:
        return Tenant.model_validate(tenant_object(store.get(tx, tenant)))


@router.put("/tenants/{tenant}")
def put_tenant(
    request: Request, context: ContextDep, caller: Admin, tenant: TenantName, body: TenantTerms
) -> Tenant:
    """Sets all terms of a tenant; a term that is left out gets its default."""
    with context.acting(tenant) as tx:
        row = store.put(tx, tenant, **body.model_dump())
        audit.record(tx, request, caller, "tenant.put", tenant, tenant, **body.model_dump())
        return Tenant.model_validate(tenant_object(row))


@router.delete("/tenants/{tenant}", status_code=202)
def erase_tenant(
    request: Request, context: ContextDep, caller: Admin, tenant: TenantName
) -> Erasure:
    """Revokes the tenant's keys at once, and erases its data for ever: jobs with their payloads,
    webhooks, limits. Its usage stays on its bill. Returns what is left; repeating it is harmless.
    """
    if tenant == caller.tenant:
        reason = "is the tenant of this credential; use another's, or `millrace tenant-erase`"
        raise Conflict(f"{tenant} {reason}")
    with context.acting(tenant) as tx:
        erasure.begin(tx, tenant)
        audit.record(tx, request, caller, "tenant.erase", tenant, tenant)
        return Erasure.model_validate(erasure_object(tenant, erasure.remaining(tx, tenant)))


@router.get("/tenants/{tenant}/erasure")
def get_erasure(context: ContextDep, caller: Admin, tenant: TenantName) -> Erasure:
    """Returns the progress of a tenant's erasure."""
    with context.acting(tenant) as tx:
        return Erasure.model_validate(erasure_object(tenant, erasure.remaining(tx, tenant)))
