"""Limits of a tenant: shown to it, set by admins."""

from collections.abc import Iterable
from dataclasses import asdict

from fastapi import APIRouter, Request

from api.auth import audit
from api.context import ContextDep
from api.dependencies import Admin, Reader
from api.routes.admin.tenants import TenantName
from api.schemas.admin import LimitList
from jobs.errors import Fault, Invalid, NotFound
from jobs.identity import Limit
from jobs.store.tenants import limits as store

router = APIRouter(tags=["tenants"])


@router.get("/tenants/{tenant}/limits")
def get_limits(context: ContextDep, caller: Reader, tenant: TenantName) -> LimitList:
    """Returns the limits of your own tenant; for admins, of any."""
    if tenant != caller.tenant and not caller.may("admin"):
        raise NotFound(f"there is no tenant {tenant}")
    with context.acting(tenant) as tx:
        return _limit_list(store.get(tx, tenant))


@router.put("/tenants/{tenant}/limits")
def put_limits(
    request: Request, context: ContextDep, caller: Admin, tenant: TenantName, body: LimitList
) -> LimitList:
    """Replaces all limits. They apply within seconds, to requests that come from then on."""
    limits = [Limit(**limit.model_dump()) for limit in body.data]
    _check(limits)
    with context.acting(tenant) as tx:
        store.put(tx, tenant, limits)
        changed = [limit.model_dump(exclude_defaults=True) for limit in body.data]
        audit.record(tx, request, caller, "limits.put", tenant, tenant, limits=changed)
        return _limit_list(store.get(tx, tenant))


def _check(limits: list[Limit]) -> None:
    seen = set()
    for n, limit in enumerate(limits):
        if (limit.model, limit.key) in seen:
            message = "there are two limits for this model and this key; put their numbers into one"
            raise Invalid(message, faults=[Fault(("data", n), "duplicate", message)])
        seen.add((limit.model, limit.key))


def _limit_list(limits: Iterable[Limit]) -> LimitList:
    return LimitList.model_validate({"data": [asdict(limit) for limit in limits]})
