"""Page of a model: its versions, aliases, routes and rollouts; and what admins change there."""

from typing import Annotated
from urllib.parse import quote

from fastapi import Path, Response

from api.dashboard.auth.viewer import Form
from api.dashboard.data import model_stats, registered_model
from api.dashboard.data.telemetry import TelemetrySnapshot
from api.dashboard.rendering import layout, page_router
from api.http.errors import validated
from api.routes.admin import models as json_routes
from api.schemas.common import NO_NUL
from api.schemas.registry import AliasRequest
from jobs.errors import NotFound
from jobs.explain import Diagnosis
from jobs.store.registry import versions
from jobs.store.tenancy import EVERYBODY
from jobs.views.registry import Copies

router = page_router.router()

_Name = Annotated[str, Path(max_length=200, pattern=NO_NUL)]


def show(
    page: layout.Page,
    telemetry: TelemetrySnapshot,
    causes: list[Diagnosis],
    name: str,
    copies: Copies,
) -> Response:
    """Shows a model by its bare name: to tenants its versions alone. Raises NotFound."""
    if not page.may("operate"):
        statuses = model_stats.statuses(page.context)
        rows = model_stats.rows(page.context, statuses, telemetry.reports)
        own = [row for row in rows if row.key.rpartition("@")[0] == name]
        if not own:
            raise NotFound(f"there is no model {name}")
        return page.render("versions_tenant.html", name=name, models=own)
    with page.context.acting(EVERYBODY) as tx:
        model = registered_model.load(page.context, tx, telemetry.reports, name)
    if model is None:
        raise NotFound(f"there is no model {name}")
    about = [one for one in causes if one.about.startswith(f"model:{name}@")]
    return page.render("versions.html", model=model, causes=about, copies=copies)


@router.post("/models/{name}/aliases")
def point_alias(page: layout.AdminPage, form: Form, name: _Name) -> Response:
    """Points an alias to a version."""
    body = validated(AliasRequest, {"version": form.get("version", "")})
    alias = form.get("alias", "").strip()
    json_routes.put_alias(*page.arguments, name, alias, body)
    return layout.redirect(_path(name), f"{name}@{alias} means {name}@{body.version} now")


@router.get("/models/{name}/versions/{version}/retire")
def confirm_retire(page: layout.AdminPage, name: _Name, version: _Name) -> Response:
    """Asks before a version is retired."""
    with page.context.acting(EVERYBODY) as tx:
        row = versions.get(tx, name, version)
    if row is None:
        raise NotFound(f"the registry has no version {name}@{version}")
    return page.render("retire.html", row=row)


@router.post("/models/{name}/versions/{version}/retire")
def retire(page: layout.AdminPage, form: Form, name: _Name, version: _Name) -> Response:
    """Retires a version."""
    json_routes.retire_version(*page.arguments, name, version)
    return layout.redirect(_path(name), f"{name}@{version} is retired: nothing new goes to it")


def _path(name: str) -> str:
    return f"{layout.PREFIX}/models/{quote(name, safe='')}"
