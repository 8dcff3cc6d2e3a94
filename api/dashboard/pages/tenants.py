"""Pages of tenants: shares, usage, terms and limits. A tenant sees its own only."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response

from api.context import ContextDep
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
_standings: AdaptiveCache[Any] = AdaptiveCache()
Tenant = Annotated[str, Path(pattern=TENANT)]


@router.get("/tenants")
def list_tenants(
    request: Request, shared: ContextDep, viewer: Viewing,
    after: Annotated[str, Query(pattern=rf"^$|{TENANT}")] = "",
) -> Response:  # fmt: skip
    """Lists tenants, or redirects to the viewer's own."""
    if not viewer.may("operate"):
        return layout.redirect(f"{layout.PREFIX}/tenants/{viewer.caller.tenant}")
    with shared.acting(EVERYBODY) as tx:
        rows = _standings.get(
            ("page", after),
            lambda: stats.page(tx, EVERYBODY, after=after, limit=_ROWS + 1),
        )
    shown = rows[:_ROWS]
    return layout.page(
        request, "tenants.html", viewer=viewer, tenants=shown, after=after,
        weights=sum(row.weight for row in shown if row.queued_items) or 1.0,
        device_us=sum(row.device_us for row in shown) or 1,
        next=shown[-1].tenant_id if len(rows) > _ROWS else "",
    )  # fmt: skip


@router.get("/tenants/{tenant}")
def show_tenant(request: Request, shared: ContextDep, viewer: Viewing, tenant: Tenant) -> Response:
    """Shows a tenant."""
    _check(viewer, tenant)
    today, own = clock.now().date(), tenant == viewer.caller.tenant
    with shared.acting(tenant) as tx:
        rows = stats.page(tx, tenant, limit=1)
        used = usage.sums(tx, tenant, ["model"], today.replace(day=1), today + timedelta(days=1))
        found = limits.get(tx, tenant)
        keys = api_keys.page(tx, tenant, None, _KEYS) if own or viewer.may("admin") else None
    if not rows:
        raise NotFound(f"there is no tenant {tenant}")
    return layout.page(
        request, "tenant.html", viewer=viewer, tenant=tenant, row=rows[0], numbers=_NUMBERS,
        usage=Report(["model"], used, shared.models).as_json(),
        limits=[asdict(limit) for limit in found], now=clock.now(), rights=ROLES,
        keys=None if keys is None else [(row, key_object(row)) for row in keys],
    )  # fmt: skip


def _check(viewer: Viewer, tenant: str) -> None:
    """Raises NotFound for other tenants, as for unknown ones."""
    if tenant != viewer.caller.tenant and not viewer.may("operate"):
        raise NotFound(f"there is no tenant {tenant}")


@router.post("/tenants/{tenant}/terms")
def set_terms(
    request: Request, shared: ContextDep, viewer: Administering, form: Form, tenant: Tenant
) -> Response:
    """Sets weight and caps."""
    names = ("weight", "soft_cap", "hard_cap")
    typed = {name: _float(form, name) for name in names if form.get(name, "").strip()}
    body = forms.validate(TenantTerms, typed)
    tenant_routes.put_tenant(request, shared, viewer.caller, tenant, body)
    return layout.redirect(_path(tenant), "Share and caps have been set")


def _float(form: Mapping[str, str], name: str) -> float | None:
    value = forms.number(form, name)
    return None if value is None else float(value)


@router.post("/tenants/{tenant}/limits")
def set_limits(
    request: Request, shared: ContextDep, viewer: Administering, form: Form, tenant: Tenant
) -> Response:
    """Replaces all limits; a row without a number is deleted."""
    body = forms.validate(LimitList, {"data": list(_typed(form))})
    limit_routes.put_limits(request, shared, viewer.caller, tenant, body)
    return layout.redirect(_path(tenant), "The limits have been set, for new requests")


def _typed(form: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    rows = sorted({name.split("-")[1] for name in form if name.startswith("limit-")})
    for n in rows:
        numbers = {name: forms.number(form, f"limit-{n}-{name}") for name in _NUMBERS}
        if any(value is not None for value in numbers.values()):
            scope = {name: form.get(f"limit-{n}-{name}", "").strip() for name in ("model", "key")}
            yield scope | numbers


def _path(tenant: str) -> str:
    return f"{layout.PREFIX}/tenants/{tenant}"
