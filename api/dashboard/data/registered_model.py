"""All versions of one model, of the registry and of the models file, with what names them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from api.context import Context
from api.dashboard.data import model_stats, signatures
from api.dashboard.data.signatures import Verdict
from jobs.models.routing.route import Route
from jobs.store.db import Tx
from jobs.store.queue.workers import NOWHERE, ModelStatus
from jobs.store.registry import aliases, rollouts, routes, versions
from jobs.store.registry.aliases import AliasRow
from jobs.store.registry.rollouts import RolloutRow
from jobs.store.registry.versions import VersionRow
from jobs.telemetry.reports.reports import ReportSet

_ROLLOUTS = 10
FILE = "models file"


@dataclass(frozen=True, slots=True)
class Version:
    """One version."""

    row: model_stats.Row
    engine: str
    state: str  #: active, retired; "declared": in the models file alone
    at: datetime | None
    by: str
    artifact: str  #: digest; "": none
    signature: Verdict | None

    @property
    def version(self) -> str:
        """Version alone."""
        return self.row.key.rpartition("@")[2]


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """One model."""

    name: str
    versions: Sequence[Version]
    aliases: Sequence[AliasRow]
    routes: Sequence[Route]
    rollouts: Sequence[RolloutRow]  #: the open one first, then the newest

    @property
    def active(self) -> list[str]:
        """Versions that an alias may name."""
        return [one.version for one in self.versions if one.state != "retired"]


def load(context: Context, tx: Tx, reports: ReportSet, name: str) -> RegisteredModel | None:
    """Returns a model; None: nothing is known of it. The transaction sees all tenants."""
    statuses = model_stats.statuses(context)
    registered = {row.key: row for row in versions.all_of(tx, name)}
    served = {model.key: model for model in context.models if model.name == name}
    known = {*registered, *served, *(key for key in statuses if key.rpartition("@")[0] == name)}
    if not known:
        return None
    newest_first = [*reversed(registered), *reversed(served), *sorted(known)]
    return RegisteredModel(
        name,
        [
            _version(context, tx, key, registered.get(key), statuses, reports)
            for key in dict.fromkeys(newest_first)
        ],
        aliases.all_of(tx, name),
        routes.all_of(tx, name),
        rollouts.page(tx, name, _ROLLOUTS),
    )


def _version(
    context: Context, tx: Tx, key: str, row: VersionRow | None,
    statuses: Mapping[str, ModelStatus], reports: ReportSet,
) -> Version:  # fmt: skip
    found = model_stats.row(context, key, statuses.get(key, NOWHERE), reports)
    if row is None:
        if found.model is None:
            return Version(found, "–", "removed", None, "–", "", None)
        return Version(found, found.model.engine, "declared", None, FILE, "", None)
    entry: dict[str, Any] = orjson.loads(row.entry)
    signature = signatures.verdict(tx, context.settings, row.artifact) if row.artifact else None
    return Version(
        found, str(entry.get("engine", "–")), row.state, row.created_at, row.created_by,
        row.artifact or "", signature,
    )  # fmt: skip
