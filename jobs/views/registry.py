"""Models of the registry as JSON objects."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import orjson

from jobs.models.routing.route import Route
from jobs.store.registry.aliases import AliasRow
from jobs.store.registry.versions import VersionRow
from jobs.views import jobs

Copies = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Numbers of copies of calls: by the version they are for, the one that answered, the outcome."""
NO_COPIES: Copies = {}


def version_object(row: VersionRow) -> dict[str, Any]:
    """A version, as it was registered."""
    return {
        "name": row.name,
        "version": row.version,
        "state": row.state,
        "entry": orjson.loads(row.entry),
        "artifact": row.artifact,
        "probe": None if row.probe is None else orjson.loads(row.probe),
        "created_at": jobs.timestamp(row.created_at),
        "created_by": row.created_by,
    }


def route_object(route: Route, copies: Copies = NO_COPIES) -> dict[str, Any]:
    """A route; `*` is all tenants that have none of their own."""
    shadow = route.shadow
    counts = copies.get(shadow.version, {}) if shadow else {}
    return {
        "tenant": route.tenant,
        "splits": [{"version": one.version, "percent": one.percent} for one in route.splits],
        "sticky": route.sticky,
        "shadow": shadow
        and {"version": shadow.version, "percent": shadow.percent, "copies": counts},
    }


def model_object(
    name: str,
    versions: Iterable[VersionRow],
    aliases: Sequence[AliasRow],
    routes: Sequence[Route],
    copies: Copies = NO_COPIES,
) -> dict[str, Any]:
    """A model with its versions, aliases and routes."""
    return {
        "name": name,
        "versions": [version_object(row) for row in versions],
        "aliases": {row.alias: row.version for row in aliases if row.name == name},
        "routes": [route_object(route, copies) for route in routes if route.name == name],
    }


def model_objects(
    versions: Iterable[VersionRow], aliases: Sequence[AliasRow], routes: Sequence[Route]
) -> list[dict[str, Any]]:
    """All models by name: those that have a version here, an alias or a route."""
    rows = {name: list(own) for name, own in groupby(versions, key=lambda row: row.name)}
    names = sorted({*rows, *(row.name for row in aliases), *(route.name for route in routes)})
    return [model_object(name, rows.get(name, ()), aliases, routes) for name in names]
