"""The pages of tenants: their shares, what they used, their terms and limits. Each tenant sees its
own."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response

from api.context import Shared
from api.dashboard.auth.viewer import Administering, Form, Viewer, Viewing
from api.dashboard.data.adaptive_cache import AdaptiveCache
from api.dashboard.rendering import forms, layout, page_router
from api.routes.admin import limits as limit_routes
from api.routes.admin import tenants as tenant_routes
from api.schemas.admin import LimitList, TenantTerms
from jobs import clock
from jobs.api_keys import TENANT
from jobs.errors import NotFound
from jobs.identity import ROLES, Limit
from jobs.store.billing import usage
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import api_keys, limits, stats
from jobs.views.tenants import key_object
from jobs.views.usage import Report

router = page_router.router()
_ROWS, _KEYS = 50, 200
_NUMBERS = tuple(one.name for one in fields(Limit) if one.name not in ("model", "key"))
_standing: AdaptiveCache[Any] = AdaptiveCache()
Tenant = Annotated[str, Path(pattern=TENANT)]


@router.get("/tenants")
def list_tenants(
    request: Request, shared: Shared, viewer: Viewing,
    after: Annotated[str, Query(pattern=rf"^$|{TENANT}")] = "",
) -> Response:  # fmt: skip
    if not viewer.may("operate"):
        return layout.go(f"{layout.PREFIX}/tenants/{viewer.caller.tenant}")
    with shared.acting(EVERYBODY) as tx:
        rows = _standing.of(
            ("page", after),
            lambda: stats.page(tx, EVERYBODY, after=after, limit=_ROWS + 1),
        )
    shown = rows[:_ROWS]
    return layout.page(
        request, "tenants.html", viewer=viewer, tenants=shown, after=after,
        weights=sum(row["weight"] for row in shown if row["queued_items"]) or 1.0,
        device_us=sum(row["device_us"] for row in shown) or 1,
        next=shown[-1]["tenant_id"] if len(rows) > _ROWS else "",
    )  # fmt: skip


@router.get("/tenants/{tenant}")
def show_tenant(request: Request, shared: Shared, viewer: Viewing, tenant: Tenant) -> Response:
    _let_in(viewer, tenant)
    today, own = clock.now().date(), tenant == viewer.caller.tenant
    with shared.acting(tenant) as tx:
        rows = stats.page(tx, tenant, limit=1)
        used = usage.sums(tx, tenant, ["model"], today.replace(day=1), today + timedelta(days=1))
        found = limits.get(tx, tenant)
        made = api_keys.page(tx, tenant, None, _KEYS) if own or viewer.may("admin") else None
    if not rows:
        raise NotFound(f"there is no tenant {tenant}")
    return layout.page(
        request, "tenant.html", viewer=viewer, tenant=tenant, row=rows[0], numbers=_NUMBERS,
        usage=Report(["model"], used, shared.models).as_json(),
        limits=[asdict(limit) for limit in found], now=clock.now(), rights=ROLES,
        keys=None if made is None else [(row, key_object(row)) for row in made],
    )  # fmt: skip


def _let_in(viewer: Viewer, tenant: str) -> None:
    """Raises NotFound, as for one that isn't there."""
    if tenant != viewer.caller.tenant and not viewer.may("operate"):
        raise NotFound(f"there is no tenant {tenant}")


@router.post("/tenants/{tenant}/terms")
def set_terms(
    request: Request, shared: Shared, viewer: Administering, form: Form, tenant: Tenant
) -> Response:
    names = ("weight", "soft_cap", "hard_cap")
    typed = {name: _float(form, name) for name in names if form.get(name, "").strip()}
    asked = forms.checked(TenantTerms, typed)
    tenant_routes.put_tenant(request, shared, viewer.caller, tenant, asked)
    return layout.go(_path(tenant), "The share and the caps are set")


def _float(form: Mapping[str, str], name: str) -> float | None:
    value = forms.number(form, name)
    return None if value is None else float(value)


@router.post("/tenants/{tenant}/limits")
def set_limits(
    request: Request, shared: Shared, viewer: Administering, form: Form, tenant: Tenant
) -> Response:
    """All of them; a row without a number is taken away."""
    asked = forms.checked(LimitList, {"data": list(_typed(form))})
    limit_routes.put_limits(request, shared, viewer.caller, tenant, asked)
    return layout.go(_path(tenant), "The limits are set, for what comes from now on")


def _typed(form: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    rows = sorted({name.split("-")[1] for name in form if name.startswith("limit-")})
    for n in rows:
        numbers = {name: forms.number(form, f"limit-{n}-{name}") for name in _NUMBERS}
        if any(value is not None for value in numbers.values()):
            whose = {name: form.get(f"limit-{n}-{name}", "").strip() for name in ("model", "key")}
            yield whose | numbers


def _path(tenant: str) -> str:
    return f"{layout.PREFIX}/tenants/{tenant}"
