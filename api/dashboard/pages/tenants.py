"""Pages of tenants: shares, usage, terms and limits. A tenant sees its own only."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Path, Query, Response

from api.dashboard.auth.viewer import Form
from api.dashboard.data.adaptive_cache import AdaptiveCache
from api.dashboard.data.telemetry import Telemetry
from api.dashboard.data.time_range import Ranged, TimeRange
from api.dashboard.rendering import forms, layout, page_router
from api.http.errors import validated
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
from jobs.views.device_cost import device_prices
from jobs.views.tenants import key_object
from jobs.views.usage import Report

router = page_router.router()
_ROWS, _KEYS = 50, 200
_COST = "device_cost_per_million"
_NUMBERS = tuple(one.name for one in fields(Limit) if one.name not in ("model", "key"))
_stats: AdaptiveCache[Any] = AdaptiveCache()
Tenant = Annotated[str, Path(pattern=TENANT)]


@router.get("/tenants")
def list_tenants(
    page: layout.ReaderPage,
    after: Annotated[str, Query(pattern=rf"^$|{TENANT}")] = "",
) -> Response:  # fmt: skip
    """Lists tenants, or redirects to the viewer's own."""
    if not page.may("operate"):
        return layout.redirect(f"{layout.PREFIX}/tenants/{page.caller.tenant}")
    with page.context.acting(EVERYBODY) as tx:
        rows = _stats.get(
            ("page", after),
            lambda: stats.page(tx, EVERYBODY, after=after, limit=_ROWS + 1),
        )
    shown = rows[:_ROWS]
    return page.render(
        "tenants.html", tenants=shown, after=after,
        weights=sum(row.weight for row in shown if row.queued_items) or 1.0,
        device_us=sum(row.device_us for row in shown) or 1,
        next=shown[-1].tenant_id if len(rows) > _ROWS else "",
    )  # fmt: skip


@router.get("/tenants/{tenant}")
def show_tenant(
    page: layout.ReaderPage, tenant: Tenant, range: Ranged, telemetry: Telemetry
) -> Response:
    """Shows a tenant."""
    if tenant != page.caller.tenant and not page.may("operate"):  # as if it were unknown
        raise NotFound(f"there is no tenant {tenant}")
    own = tenant == page.caller.tenant
    with page.context.acting(tenant) as tx:
        rows = stats.page(tx, tenant, limit=1)
        used = usage.sums(tx, tenant, ["model"], *_times(range))
        limit_rows = limits.get(tx, tenant)
        keys = api_keys.page(tx, tenant, None, _KEYS) if own or page.may("admin") else None
    if not rows:
        raise NotFound(f"there is no tenant {tenant}")
    prices = device_prices(telemetry.reports) if page.may("operate") else {}
    report = Report(["model"], used, page.context.models, prices).as_json()
    return page.render(
        "tenant.html", tenant=tenant, row=rows[0], numbers=_NUMBERS,
        range=range, usage=report, costs=any(_COST in one for one in report["data"]),
        limits=[asdict(limit) for limit in limit_rows], now=clock.now(), rights=ROLES,
        keys=None if keys is None else [(row, key_object(row)) for row in keys],
    )  # fmt: skip


def _times(range: TimeRange) -> tuple[datetime, datetime | None]:
    """Returns from when to when usage is summed up: without a range, this month's."""
    if range.pairs:
        return range.start or datetime.min.replace(tzinfo=UTC), range.end
    month = clock.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return month, None


@router.post("/tenants/{tenant}/terms")
def set_terms(page: layout.AdminPage, form: Form, tenant: Tenant) -> Response:
    """Sets weight and caps."""
    names = ("weight", "soft_cap", "hard_cap")
    typed = {name: _float(form, name) for name in names if form.get(name, "").strip()}
    body = validated(TenantTerms, typed)
    tenant_routes.put_tenant(*page.arguments, tenant, body)
    return layout.redirect(_path(tenant), "Share and caps have been set")


def _float(form: Mapping[str, str], name: str) -> float | None:
    value = forms.number(form, name)
    return None if value is None else float(value)


@router.post("/tenants/{tenant}/limits")
def set_limits(page: layout.AdminPage, form: Form, tenant: Tenant) -> Response:
    """Replaces all limits; a row without a number is deleted."""
    body = validated(LimitList, {"data": list(_typed(form))})
    limit_routes.put_limits(*page.arguments, tenant, body)
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
