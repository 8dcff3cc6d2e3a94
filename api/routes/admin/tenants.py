"""Tenants: their share and their caps, for admins."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from api.auth import audit
from api.context import Shared
from api.dependencies import Admin
from api.http.responses import json_response
from api.schemas import examples
from api.schemas.admin import Erasure, Tenant, TenantPage, TenantTerms
from jobs.api_keys import TENANT
from jobs.errors import Conflict
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import erasure
from jobs.store.tenants import tenants as store
from jobs.views.tenants import erasure_object, tenant_object

router = APIRouter(tags=["tenants"])

TenantName = Annotated[
    str, Path(description="its name", pattern=TENANT, examples=[examples.TENANT])
]


@router.get("/tenants", response_model=TenantPage)
def list_tenants(
    shared: Shared,
    caller: Admin,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[
        str | None, Query(description="`next` of the page before", pattern=TENANT)
    ] = None,
) -> Response:
    """By name: whoever has had a key, or terms of its own."""
    with shared.acting(EVERYBODY) as tx:
        rows = store.page(tx, EVERYBODY, after or "", limit + 1)
    found = [tenant_object(row) for row in rows[:limit]]
    more = found[-1]["tenant"] if len(rows) > limit else None
    return json_response({"data": found, "next": more})


@router.get("/tenants/{tenant}", response_model=Tenant)
def get_tenant(shared: Shared, caller: Admin, tenant: TenantName) -> Response:
    """Its terms."""
    with shared.acting(tenant) as tx:
        return json_response(tenant_object(store.get(tx, tenant)))


@router.put("/tenants/{tenant}", response_model=Tenant)
def put_tenant(
    request: Request, shared: Shared, caller: Admin, tenant: TenantName, asked: TenantTerms
) -> Response:
    """Sets its terms, all of them: what isn't named is as at the beginning."""
    with shared.acting(tenant) as tx:
        row = store.put(tx, tenant, **asked.model_dump())
        audit.record(tx, request, caller, "tenant.put", tenant, tenant, **asked.model_dump())
        return json_response(tenant_object(row))


@router.delete("/tenants/{tenant}", status_code=202, response_model=Erasure)
def erase_tenant(request: Request, shared: Shared, caller: Admin, tenant: TenantName) -> Response:
    """Revokes its keys at once, and erases everything of it, for ever: jobs with their payloads,
    webhooks, limits. What it used stays on its bill. Says what is left; asking again does no
    harm."""
    if tenant == caller.tenant:
        why = "is the tenant of this credential; use another's, or `millrace tenant-erase`"
        raise Conflict(f"{tenant} {why}")
    with shared.acting(tenant) as tx:
        erasure.begin(tx, tenant)
        audit.record(tx, request, caller, "tenant.erase", tenant, tenant)
        return json_response(erasure_object(tenant, erasure.remaining(tx, tenant)), 202)


@router.get("/tenants/{tenant}/erasure", response_model=Erasure)
def get_erasure(shared: Shared, caller: Admin, tenant: TenantName) -> Response:
    """How far the erasure of a tenant is."""
    with shared.acting(tenant) as tx:
        return json_response(erasure_object(tenant, erasure.remaining(tx, tenant)))
