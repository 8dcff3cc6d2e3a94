"""Table of all routes, rollouts and aliases at one moment, by which a call gets its version."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from jobs import clock
from jobs.models.routing.rollout import ActiveRollout, Cohort
from jobs.models.routing.route import ALL_TENANTS, Route, bucket_for, caller_for

STABLE = "stable"
"""Alias of the version that a bare name means where nothing else routes it."""

KEEP_WARM_S = 3600.0
"""Time for which workers keep the version that an alias meant before, unless its change says
otherwise."""
MOST_WARM_S = 30 * 86_400.0
"""Longest such time."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Version that a call is to be answered by."""

    version: str
    cohort: Cohort = ""
    rollout: str = ""  #: id of the rollout that the cohort is of
    caller: str = ""  #: what stands for a sticky caller of it
    shadow: str = ""  #: version that gets a copy; "": none
    fallback: str = ""  #: version that answers where no worker is ready for the other; "": none
    any_ready: bool = False  #: any ready version may answer in place of one without a worker

    @property
    def label(self) -> str:
        """Cohort as calls have it (jobs/rollouts/cohorts.py); "": none."""
        return self._labelled(self.cohort)

    @property
    def fallback_label(self) -> str:
        """Cohort of the call where the fallback answers it."""
        return self._labelled("missed") if self.cohort == "canary" else ""

    def _labelled(self, cohort: str) -> str:
        if not cohort:
            return ""
        return f"{cohort}#{self.rollout}" + (f"#{self.caller}" if self.caller else "")


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Everything that routes calls by bare names and by aliases; a new one for each change."""

    aliases: Mapping[tuple[str, str], str] = field(default_factory=dict)  #: (name, alias): version
    rollouts: Mapping[str, ActiveRollout] = field(default_factory=dict)  #: by name of the model
    #: by name of the model and tenant
    routes: Mapping[tuple[str, str], Route] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.aliases or self.rollouts or self.routes)

    def alias(self, name: str, alias: str) -> str | None:
        """Returns the version that an alias of a model means, or None."""
        return self.aliases.get((name, alias))

    def usual(self, name: str, tenant: str) -> str | None:
        """Returns the version that a tenant's job by the bare name is bound to; None: nothing
        routes it. It is the stable one of the rollout, the first of the route, or the alias
        `stable`."""
        if rollout := self.rollouts.get(name):
            return rollout.stable
        route = self.routes.get((name, tenant)) or self.routes.get((name, ALL_TENANTS))
        return route.base if route else self.aliases.get((name, STABLE))

    def versions(self, name: str, tenant: str) -> Collection[str]:
        """Returns the versions that a tenant's calls by the bare name go to; empty: nothing routes
        it."""
        if rollout := self.rollouts.get(name):
            return {rollout.stable, rollout.canary}
        route = self.routes.get((name, tenant)) or self.routes.get((name, ALL_TENANTS))
        if route:
            return {route.base, *(share.version for share in route.splits if share.buckets)}
        stable = self.aliases.get((name, STABLE))
        return {stable} if stable else ()

    def names(self, name: str, version: str) -> bool:
        """Returns True if any alias, route or rollout of a model names a version."""
        if any(one[0] == name and means == version for one, means in self.aliases.items()):
            return True
        rollout = self.rollouts.get(name)
        if rollout and version in (rollout.stable, rollout.canary):
            return True
        routes = (route for (of, _), route in self.routes.items() if of == name)
        return any(version in route.versions for route in routes)

    def choose(self, name: str, tenant: str, user: str = "", key: str = "") -> Choice | None:
        """Returns the version of a model for a call by its bare name; None: nothing routes it.

        A rollout goes before the route of the tenant, this before the one of all tenants, and last
        is the alias `stable`. user: as the client named it; key: its Idempotency-Key.
        """
        if rollout := self.rollouts.get(name):
            return _by_rollout(rollout, tenant, user, key)
        route = self.routes.get((name, tenant)) or self.routes.get((name, ALL_TENANTS))
        if route:
            return _by_route(route, tenant, user, key)
        stable = self.aliases.get((name, STABLE))
        return Choice(stable, any_ready=True) if stable else None


def _by_rollout(rollout: ActiveRollout, tenant: str, user: str, key: str) -> Choice:
    bucket = bucket_for(rollout.sticky, rollout.salt, tenant, user, key)
    cohort = rollout.cohort_at(bucket)
    if cohort == "stable":  # of sticky callers nothing is counted there
        known = not rollout.sticky
        return Choice(rollout.stable, "stable", rollout.id) if known else Choice(rollout.stable)
    caller = caller_for(rollout.sticky, rollout.salt, tenant, user)
    if cohort == "control":
        return Choice(rollout.stable, cohort, rollout.id, caller)
    return Choice(rollout.canary, cohort, rollout.id, caller, fallback=rollout.stable)


def _by_route(route: Route, tenant: str, user: str, key: str) -> Choice:
    version = route.version_at(bucket_for(route.sticky, route.salt, tenant, user, key))
    copied = route.shadow
    shadows = copied and copied.version != version and clock.chance(copied.percent / 100)
    return Choice(
        version,
        shadow=copied.version if copied and shadows else "",
        fallback=route.base if route.base != version else "",
    )
