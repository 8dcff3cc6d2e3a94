"""Versions that a call may go to, in order; also in child processes: all of it can be pickled."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastapi import Request

from jobs.immutable import immutable
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.models.routing.table import RoutingTable

USER_HEADER = "X-Millrace-User"
_CANARY = "\ncanary"
USER_PARAMETER = {
    "name": USER_HEADER,
    "in": "header",
    "description": "user of the caller, for routes that keep each user at one version",
    "schema": {"type": "string"},
}


@dataclass(frozen=True, slots=True)
class Asker:
    """Caller of a model, as routes tell callers apart."""

    tenant: str
    user: str = ""  #: of the tenant, as its client names it
    key: str = ""  #: what a call and its retries share: their Idempotency-Key
    taken: str = ""  #: as `Target.taken`, of the first of them; "": this is it

    def was_at(self, target: "Target") -> bool:
        """Returns True if the version of a target took the call before."""
        return self.taken.partition(_CANARY)[0] == target.model.key

    @classmethod
    def read(
        cls, request: Request, tenant: str, key: str | None = None, taken: str = ""
    ) -> "Asker":
        """Reads the headers of a request. key: its Idempotency-Key."""
        return cls(tenant, request.headers.get(USER_HEADER, ""), key or "", taken)

    def named(self, user: object) -> "Asker":
        """Returns the caller with the user that a body names, unless a header did."""
        return (
            replace(self, user=user) if user and not self.user and isinstance(user, str) else self
        )


@immutable
class Target:
    """Version that a call goes to."""

    model: Model
    cohort: str = ""  #: see Call
    shadow: Model | None = None  #: version that gets a copy
    missed: Model | None = None  #: version that it was routed to, which had no ready worker

    @property
    def taken(self) -> str:
        """Version, and whether it is a canary, as they are kept under an Idempotency-Key."""
        canary = self.cohort.startswith("canary")
        return f"{self.model.key}{_CANARY if canary else ''}"

    def without_copies(self) -> "Target":
        """Returns the target of a call that is part of no comparison."""
        return Target(self.model)


def targets(models: Registry, routing: RoutingTable, name: str, asker: Asker) -> Sequence[Target]:
    """Returns where a call of this name may go: to the first target with a ready worker, or to the
    last. Raises UnknownModel.

    A version that is named goes before all else, then the one that took the call before. A version
    that a route names and that is not declared here counts as one without a worker. A retry is of
    no cohort: a call that fails again for the reason it failed before counts once.
    """
    kept = _taken(models, routing, name, asker) if asker.taken else None
    if kept is None:
        return _routed(models, routing, name, asker)
    return [Target(kept)]


def _taken(models: Registry, routing: RoutingTable, name: str, asker: Asker) -> Model | None:
    """Returns the version that took the call before; None where it takes none any more: it was
    retired, or was a canary that was rolled back."""
    key, canary, _ = asker.taken.partition(_CANARY)
    kept = models.get(key)
    if kept is None or models.get(name) or kept.name != models.versions(name)[0].name:
        return None
    if canary and kept.version not in routing.versions(kept.served_by.name, asker.tenant):
        return None
    return kept


def _routed(models: Registry, routing: RoutingTable, name: str, asker: Asker) -> Sequence[Target]:
    versions = models.versions(name)
    if len(versions) == 1 and "@" in name:
        return [Target(versions[0])]
    choice = routing.choose(versions[0].served_by.name, asker.tenant, asker.user, asker.key)
    if choice is None:
        return _newest(versions)
    chosen = _find(versions, choice.version)
    if chosen is None and not choice.fallback:
        return _newest(versions)
    found = [Target(chosen, choice.label, _find(versions, choice.shadow))] if chosen else []
    if other := _find(versions, choice.fallback):
        found.append(Target(other, choice.fallback_label, missed=chosen))
    elif choice.any_ready and chosen:
        others = (Target(one, missed=chosen) for one in versions if one != chosen)
        found = [*found, *others, *found]
    return found or _newest(versions)


def _newest(versions: Sequence[Model]) -> Sequence[Target]:
    """Returns the versions, the one declared last first; it stands for all where none is ready."""
    found = [Target(model) for model in versions]
    return [*found, found[0]] if len(found) > 1 else found


def _find(versions: Sequence[Model], version: str) -> Model | None:
    return (
        next((model for model in versions if model.version == version), None) if version else None
    )


@dataclass(frozen=True, slots=True)
class ReadyVersions:
    """Routes, and the versions with a ready worker, at one moment: enough to route a call whose
    model is known only once its body was read."""

    routing: RoutingTable
    asker: Asker
    ready: frozenset[str]  #: keys of versions, of models that have several

    def target(self, models: Registry, name: str, user: object = "") -> Target:
        """Returns where a call goes. user: the one that its body names. Raises UnknownModel."""
        found = targets(models, self.routing, name, self.asker.named(user))
        return next((one for one in found if one.model.served_by.key in self.ready), found[-1])
