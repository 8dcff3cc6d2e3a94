"""Versions that the registry holds beside the models file, and the union of both."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from jobs.models import artifact_paths, models_file
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.models.routing.table import RoutingTable
from jobs.settings import SettingsError

_log = logging.getLogger(__name__)

MAY_CHANGE = ("price", "adapters")
"""Fields of an entry that may change under a version, as in the models file."""


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """One version, as the registry has it."""

    name: str
    version: str
    entry: str  #: JSON: the fields of an entry of the models file but name and version
    artifact: str = ""  #: digest of its files; "": it needs none, or its options name them
    probe: str = ""  #: JSON: inputs, outputs and tolerance of its probe; "": none
    created: int = 0  #: s since 1970 at which it was registered

    @property
    def key(self) -> str:
        """Identity of this version: name@version."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Registered:
    """Contents of the registry at one moment."""

    versions: tuple[RegisteredVersion, ...] = ()  #: active ones, in the order of registration
    #: retired ones whose jobs have not ended: for those who run them
    unfinished: tuple[RegisteredVersion, ...] = ()
    routing: RoutingTable = field(default_factory=RoutingTable)
    #: versions (name@version) before those of aliases, which workers keep in memory for now
    kept_warm: frozenset[str] = frozenset()
    #: canaries (name@version) that were rolled back lately, by the rollout's id
    rolled_back: tuple[tuple[str, str], ...] = ()


@lru_cache(4096)
def parse(one: RegisteredVersion) -> Model:
    """Returns the model of a registered version, checked as one of the models file.

    Relative paths among its options begin in its artifact. Raises SettingsError.
    """
    folder = artifact_paths.root(one.artifact) if one.artifact else Path("/")
    model = models_file.parse_entry(
        {**json.loads(one.entry), "name": one.name, "version": one.version}, folder
    )
    return replace(model, artifact=one.artifact, probe=one.probe, created=one.created)


def union(declared: Registry, registered: Registered) -> Registry:
    """Returns the models of the file, then those of the registry, whose word counts where both have
    a version. What can't be read is logged, and left out."""
    if registered == Registered():
        return declared
    models = {model.key: model for model in _readable(registered.versions)}
    for model in declared:
        if models.get(model.key, model) != model:
            _log.error("%s differs from the registry's, which is served", model.key)
    older = {model.key: model for model in (*_readable(registered.unfinished), *declared)}
    before = [model for key, model in older.items() if key not in models]
    return Registry(_with_known_fallbacks([*before, *models.values()]), registered.routing)


def _readable(versions: Iterable[RegisteredVersion]) -> Iterator[Model]:
    for one in versions:
        try:
            yield parse(one)
        except SettingsError as error:
            _log.error("%s of the registry is not served: %s", one.key, "; ".join(error.problems))


def _with_known_fallbacks(models: list[Model]) -> list[Model]:
    """Returns the models without fallbacks that they can't have."""
    problems = models_file.problems_of(models)
    for problem in problems.values():
        _log.error("%s: it falls back to none", problem)
    return [
        replace(one, degrade=replace(one.degrade, fallback="")) if one.key in problems else one
        for one in models
    ]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns the fields of two entries that differ and may not change under a version."""
    return [
        name
        for name in sorted({*old, *new})
        if name not in MAY_CHANGE and old.get(name) != new.get(name)
    ]
