"""Tenants: their share and their caps, for admins."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.auth import Admin
from api.context import Shared
from api.routes.common import json_response
from api.schemas import Tenant, TenantPage, TenantTerms
from jobs.keys import TENANT, tenant_object
from jobs.store import tenants as store
from jobs.store.tenancy import EVERYBODY

router = APIRouter(tags=["tenants"])

TenantName = Annotated[str, Path(description="its name", pattern=TENANT)]


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
def put_tenant(shared: Shared, caller: Admin, tenant: TenantName, asked: TenantTerms) -> Response:
    """Sets its terms, all of them: what isn't named is as at the beginning."""
    with shared.acting(tenant) as tx:
        return json_response(tenant_object(store.put(tx, tenant, **asked.model_dump())))
