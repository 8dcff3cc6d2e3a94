"""The registry of models, for admins: versions, aliases, routes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from api.auth import audit
from api.context import Context, ContextDep
from api.dependencies import Admin
from api.schemas.common import MODEL, NO_NUL, TENANT
from api.schemas.registry import (
    AliasRequest,
    EntryList,
    ModelAlias,
    ModelRoute,
    ProbeRequest,
    RegisteredModel,
    RegisteredModels,
    RegisteredVersion,
    RouteRequest,
    VersionChange,
    VersionChanges,
    VersionRequest,
    VersionRetired,
)
from jobs.errors import NotFound
from jobs.identity import Caller
from jobs.models.routing.route import Route, Share
from jobs.store.registry import aliases, routes, versions
from jobs.store.tenancy import EVERYBODY
from jobs.usecases.registry.registrar import Registrar
from jobs.views import registry as views
from jobs.views.registry import Copies

router = APIRouter(prefix="/admin/models", tags=["registry"])

_Name = Annotated[str, Path(pattern=NO_NUL, max_length=200, examples=[MODEL])]
_Version = Annotated[str, Path(pattern=NO_NUL, max_length=200, examples=["2"])]
_Alias = Annotated[str, Path(pattern=NO_NUL, max_length=200, examples=["stable"])]
_Tenant = Annotated[
    str,
    Path(
        pattern=NO_NUL,
        max_length=200,
        description="`*`: all tenants that have no route of their own",
        examples=[TENANT],
    ),
]


async def copies_of(context: ContextDep, name: _Name) -> Copies:
    """Returns how the copies of a model's calls compared, for each version that gets some."""
    routes = context.models.routing.routes.items()
    shadows = {route.shadow.version for (of, _), route in routes if of == name and route.shadow}
    return {one: await context.shadows.counts(f"{name}@{one}") for one in sorted(shadows)}


CopiesDep = Annotated[Copies, Depends(copies_of)]


@contextmanager
def changing(request: Request, context: Context, caller: Caller) -> Iterator[Registrar]:
    """Opens a transaction that changes the registry; each change is in the audit log."""
    with context.acting(EVERYBODY) as tx:
        record = partial(audit.record, tx, request, caller)
        yield Registrar(tx, context.models_file.declared, caller.actor, record)


@router.get("")
def list_models(context: ContextDep, caller: Admin) -> RegisteredModels:
    """Lists the models of the registry with all their versions, aliases and routes. `GET /models`
    lists what is served, and its state in the workers."""
    with context.acting(EVERYBODY) as tx:
        found = versions.all_of(tx), aliases.all_of(tx), routes.all_of(tx)
    return RegisteredModels.model_validate({"data": views.model_objects(*found)})


@router.post("", status_code=201)
def push_version(
    request: Request, response: Response, context: ContextDep, caller: Admin, body: VersionRequest
) -> VersionChange:
    """Registers a version. It never changes, but for its price and adapters: the same again is 200
    and changes nothing, another entry under its version is 409. A retired one becomes active."""
    probe = "" if body.probe is None else json.dumps(body.probe)
    with changing(request, context, caller) as registrar:
        artifact = body.artifact or ""
        change = registrar.push(body.name, body.version, body.entry, artifact, probe)
    response.status_code = 201 if change == "added" else 200
    return VersionChange(name=body.name, version=body.version, change=change)


@router.post("/apply")
def apply_entries(
    request: Request, context: ContextDep, caller: Admin, body: EntryList
) -> VersionChanges:
    """Registers the entries of a models file, all or none; versions that it doesn't have stay."""
    with changing(request, context, caller) as registrar:
        changes = registrar.apply(body.models)
    return VersionChanges(data=[_change(key, change) for key, change in changes])


def _change(key: str, change: Any) -> VersionChange:
    name, _, version = key.rpartition("@")
    return VersionChange(name=name, version=version, change=change)


@router.get("/{name}")
def get_model(
    context: ContextDep, caller: Admin, copies: CopiesDep, name: _Name
) -> RegisteredModel:
    """Returns a model with its versions, aliases and routes."""
    with context.acting(EVERYBODY) as tx:
        found = versions.all_of(tx, name), aliases.all_of(tx, name), routes.all_of(tx, name)
    if not any(found):
        raise NotFound(f"the registry has no model {name!r}")
    return RegisteredModel.model_validate(views.model_object(name, *found, copies))


@router.get("/{name}/versions/{version}")
def get_version(
    context: ContextDep, caller: Admin, name: _Name, version: _Version
) -> RegisteredVersion:
    """Returns a version as it was registered."""
    with context.acting(EVERYBODY) as tx:
        row = versions.get(tx, name, version)
    if row is None:
        raise NotFound(f"the registry has no version {name}@{version}")
    return RegisteredVersion.model_validate(views.version_object(row))


@router.post("/{name}/versions/{version}/retire")
def retire_version(
    request: Request, context: ContextDep, caller: Admin, name: _Name, version: _Version
) -> VersionRetired:
    """Retires a version: nothing new goes to it, and workers keep it until its jobs, which are
    named, and its calls have ended. 409 while an alias, a route, a rollout or a fallback has it."""
    with changing(request, context, caller) as registrar:
        change, jobs = registrar.retire(name, version), registrar.unfinished_jobs(name, version)
    return VersionRetired(name=name, version=version, change=change, unfinished_jobs=jobs)


@router.put("/{name}/versions/{version}/probe")
def put_probe(
    request: Request,
    context: ContextDep,
    caller: Admin,
    name: _Name,
    version: _Version,
    body: ProbeRequest,
) -> VersionChange:
    """Records the known answers of a version: a worker that loads it from then on, and gets others,
    never serves it. 409 where it has some and is active: those of a retired version may be recorded
    anew."""
    with changing(request, context, caller) as registrar:
        change = registrar.record_probe(name, version, json.dumps(body.model_dump()))
    return VersionChange(name=name, version=version, change=change)


@router.put("/{name}/aliases/{alias}")
def put_alias(
    request: Request,
    context: ContextDep,
    caller: Admin,
    name: _Name,
    alias: _Alias,
    body: AliasRequest,
) -> ModelAlias:
    """Points an alias to a version, in all processes within a second. `stable` is what the bare
    name means where no rollout and no route decides."""
    with changing(request, context, caller) as registrar:
        change = registrar.set_alias(name, alias, body.version, body.keep_warm_s)
    return ModelAlias(name=name, alias=alias, version=body.version, change=change)


@router.delete("/{name}/aliases/{alias}", status_code=204, response_class=Response)
def delete_alias(
    request: Request, context: ContextDep, caller: Admin, name: _Name, alias: _Alias
) -> Response:
    """Removes an alias."""
    with changing(request, context, caller) as registrar:
        registrar.remove_alias(name, alias)
    return Response(status_code=204)


@router.put("/{name}/routes/{tenant}")
def put_route(
    request: Request,
    context: ContextDep,
    caller: Admin,
    name: _Name,
    tenant: _Tenant,
    body: RouteRequest,
) -> ModelRoute:
    """Sets the shares of a model's calls by version, for one tenant or for all. The version named
    last has the low end of the hash: raising its share takes no caller back."""
    copied = body.shadow
    shadow = Share(copied.version, copied.percent) if copied else None
    splits = tuple(Share(one.version, one.percent) for one in body.splits)
    with changing(request, context, caller) as registrar:
        route = registrar.set_route(Route(name, splits, tenant, body.sticky, shadow=shadow))
    return ModelRoute.model_validate(views.route_object(route))


@router.delete("/{name}/routes/{tenant}", status_code=204, response_class=Response)
def delete_route(
    request: Request, context: ContextDep, caller: Admin, name: _Name, tenant: _Tenant
) -> Response:
    """Removes a route."""
    with changing(request, context, caller) as registrar:
        registrar.remove_route(name, tenant)
    return Response(status_code=204)
