"""What a tenant may use at most: shown to it, set by admins."""

from collections.abc import Iterable
from dataclasses import asdict

from fastapi import APIRouter, Request, Response

from api.auth import audit
from api.context import Shared
from api.dependencies import Admin, Reader
from api.http.responses import json_response
from api.routes.admin.tenants import TenantName
from api.schemas.admin import LimitList
from jobs.errors import Fault, Invalid, NotFound
from jobs.identity import Limit
from jobs.store.tenants import limits as store

router = APIRouter(tags=["tenants"])


@router.get("/tenants/{tenant}/limits", response_model=LimitList)
def get_limits(shared: Shared, caller: Reader, tenant: TenantName) -> Response:
    """Of one's own tenant; for admins, of any."""
    if tenant != caller.tenant and not caller.may("admin"):
        raise NotFound(f"there is no tenant {tenant}")
    with shared.acting(tenant) as tx:
        return _shown(store.get(tx, tenant))


@router.put("/tenants/{tenant}/limits", response_model=LimitList)
def put_limits(
    request: Request, shared: Shared, caller: Admin, tenant: TenantName, asked: LimitList
) -> Response:
    """These take the place of all that there were, within seconds, for what comes from then on."""
    limits = [Limit(**limit.model_dump()) for limit in asked.data]
    _check(limits)
    with shared.acting(tenant) as tx:
        store.put(tx, tenant, limits)
        noted = [limit.model_dump(exclude_defaults=True) for limit in asked.data]
        audit.record(tx, request, caller, "limits.put", tenant, tenant, limits=noted)
        return _shown(store.get(tx, tenant))


def _check(limits: list[Limit]) -> None:
    seen = set()
    for n, limit in enumerate(limits):
        if (limit.model, limit.key) in seen:
            why = "there are two limits for this model and this key; put their numbers into one"
            raise Invalid(why, faults=[Fault(("data", n), "duplicate", why)])
        seen.add((limit.model, limit.key))


def _shown(limits: Iterable[Limit]) -> Response:
    return json_response({"data": [asdict(limit) for limit in limits]})
