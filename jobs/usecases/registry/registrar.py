"""Changes of the registry: checked against all that it holds, and recorded in the audit log."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import orjson

from jobs import clock, ids
from jobs.errors import Conflict, Invalid, NotFound
from jobs.models import models_file, registered
from jobs.models.model import Model
from jobs.models.probe import Probe
from jobs.models.registered import Registered, RegisteredVersion
from jobs.models.registry import Registry
from jobs.models.routing import route as routing
from jobs.models.routing.route import Route
from jobs.models.routing.table import KEEP_WARM_S
from jobs.settings import SettingsError
from jobs.store.db import Tx
from jobs.store.registry import aliases, routes, snapshot, versions
from jobs.store.registry.versions import VersionRow
from jobs.store.tenancy import EVERYBODY
from jobs.usecases.registry import artifacts, entries

Change = Literal["added", "changed", "activated", "unchanged"]
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_SALT_BITS = 64


class Record(Protocol):
    """Writes to the audit log, in the transaction of the act. detail: ids, names and states."""

    def __call__(self, act: str, target: str, tenant: str, /, **detail: Any) -> None: ...


class Registrar:
    """Changes the registry in one transaction, which sees all tenants; others wait for its end.

    declared: models of the models file, which aliases and routes may name too. actor: as in the
    audit log.
    """

    def __init__(self, tx: Tx, declared: Registry, actor: str, record: Record) -> None:
        versions.lock_registry(tx)
        self.tx, self._declared, self._actor, self._record = tx, declared, actor, record

    # -- versions

    def apply(self, declared: Sequence[Mapping[str, Any]]) -> list[tuple[str, Change]]:
        """Registers all entries of a models file; returns what changed, by name@version.

        Versions that the file doesn't have stay. Raises as `push`, and registers none then.
        """
        named = [entries.split(entry) for entry in declared]
        return [
            (f"{name}@{version}", self.push(name, version, fields))
            for name, version, fields in named
        ]

    def push(
        self,
        name: str,
        version: str,
        entry: Mapping[str, Any],
        artifact: str = "",
        probe: str = "",
    ) -> Change:
        """Registers a version, or takes a retired one back; the same again changes nothing.

        Its price and adapters alone may differ from those before. Raises Invalid for an entry that
        the models file couldn't have, Conflict for one that differs from that of its version.
        """
        text, probe = entries.as_json(entry), entries.known_answers(probe)
        one = RegisteredVersion(name, version, text, artifact, probe)
        self._check(one)
        row = versions.get(self.tx, name, version)
        if row is None:
            versions.insert_version(self.tx, one, self._actor)
            engine = str(entry.get("engine"))
            self._record("model.push", one.key, EVERYBODY, artifact=artifact, engine=engine)
            return "added"
        before = orjson.loads(row.entry)
        differing = registered.differences(before, orjson.loads(text))
        if artifact != (row.artifact or ""):
            differing.append("artifact")
        if probe and probe != entries.known_answers(row.probe or ""):
            differing.append("probe")
        if differing:
            raise Conflict(
                f"{one.key} is registered with other values of {', '.join(differing)}: a version "
                "never changes. Push this one under another version"
            )
        artifacts.check_adapters(before, entry)
        changed = [name for name in registered.MAY_CHANGE if before.get(name) != entry.get(name)]
        if changed:
            versions.set_entry(self.tx, name, version, text)
            self._record("model.change", one.key, EVERYBODY, fields=changed)
        if row.state == "retired":
            versions.set_state(self.tx, name, version, "active")
            self._record("model.activate", one.key, EVERYBODY)
            return "activated"
        return "changed" if changed else "unchanged"

    def push_adapter(self, base: str, name: str, fields: Mapping[str, Any]) -> Change:
        """Registers an adapter of an active version (name@version); the same again changes nothing.
        fields: of its entry but the name, its artifact among them. Raises as `push`."""
        of, _, version = base.partition("@")
        row = self._registered(of, version, "declare its adapters there too")
        if row.state == "retired":
            raise Conflict(f"{base} is retired: push it again first")
        entry = artifacts.with_adapter(orjson.loads(row.entry), {**fields, "name": name})
        change = self.push(of, version, entry, row.artifact or "")
        if change == "changed":
            artifact = fields.get("artifact")
            self._record("model.adapter", f"{of}:{name}@{version}", EVERYBODY, artifact=artifact)
        return change

    def retire(self, name: str, version: str) -> Change:
        """Retires a version: no new call or job goes to it, and workers keep it until those that
        there are have ended.

        `unfinished_jobs` names the jobs. Raises NotFound, and Conflict where an alias, a route, a
        rollout or a fallback names it.
        """
        key, row = f"{name}@{version}", self._registered(name, version, "remove it there")
        if row.state == "retired":
            return "unchanged"
        if users := list(self._users(name, version)):
            raise Conflict(f"{key} is used by {', '.join(users)}: change these first")
        versions.set_state(self.tx, name, version, "retired")
        self._record("model.retire", key, EVERYBODY)
        return "changed"

    def unfinished_jobs(self, name: str, version: str) -> list[str]:
        """Returns the ids of jobs of a version that have not ended, 100 at most."""
        return [ids.show("job", id) for id in versions.unfinished_jobs(self.tx, name, version)]

    def record_probe(self, name: str, version: str, probe: str) -> Change:
        """Records the known answers of a version (JSON), which each worker that loads it from then
        on checks before it is ready.

        They stay while the version is active; those of a retired one may be recorded anew. Raises
        NotFound, Invalid, Conflict.
        """
        key, probe = f"{name}@{version}", entries.known_answers(probe)
        row = self._registered(name, version, "push it first")
        before = entries.known_answers(row.probe or "")
        if before == probe:
            return "unchanged"
        if before and row.state == "active":
            raise Conflict(
                f"{key} has recorded answers, which stay while it is active: retire it first, or "
                "record these with another version"
            )
        versions.set_probe(self.tx, name, version, probe)
        self._record("model.probe", key, EVERYBODY, inputs=len(Probe.from_json(probe).inputs))
        return "changed" if before else "added"

    def _registered(self, name: str, version: str, advice: str) -> VersionRow:
        """Returns a version. advice: for one of the models file. Raises NotFound."""
        row = versions.get(self.tx, name, version)
        if row is None:
            key = f"{name}@{version}"
            where = f": the models file declares it, {advice}" if self._file(key) else ""
            raise NotFound(f"the registry has no version {key}{where}")
        return row

    def _check(self, one: RegisteredVersion) -> None:
        """Raises Invalid or Conflict for a version that can't be registered."""
        try:
            model = registered.parse(one)
        except SettingsError as error:
            raise Invalid(f"{one.key} can't be registered: {'; '.join(error.problems)}") from error
        if aliases.get(self.tx, one.name, one.version) is not None:
            raise Conflict(f"{one.name} has an alias {one.version!r}: take another version")
        artifacts.check(self.tx, model)
        if problem := models_file.problems_of([*self._served(), model]).get(one.key):
            raise Invalid(problem)

    def _users(self, name: str, version: str) -> Iterator[str]:
        """Yields whatever names a version, in words."""
        held = snapshot.read(self.tx).routing
        for (of, alias), means in held.aliases.items():
            if (of, means) == (name, version):
                yield f"the alias {alias!r}"
        for (of, tenant), route in held.routes.items():
            if of == name and version in route.versions:
                yield f"the route of {'all tenants' if tenant == EVERYBODY else tenant}"
        rollout = held.rollouts.get(name)
        if rollout and version in (rollout.stable, rollout.canary):
            yield f"the rollout {rollout.id}"
        for model in self._served():
            if model.degrade.fallback == f"{name}@{version}":
                yield f"the fallback of {model.key}"

    # -- aliases and routes

    def set_alias(
        self, name: str, alias: str, version: str, keep_warm_s: float = KEEP_WARM_S
    ) -> Change:
        """Points an alias to an active version. keep_warm_s: time for which workers keep the
        version before. Raises Invalid, NotFound, Conflict."""
        if not _ALIAS.fullmatch(alias):
            raise Invalid(
                f"{alias!r} can't be an alias: it begins with a letter, and has at most 64 "
                "letters, digits, '.', '_' and '-'"
            )
        self._require(name, version)
        if alias in self.active(name) or versions.get(self.tx, name, alias):
            raise Conflict(f"{name}@{alias} is a version: take another alias")
        before = aliases.get(self.tx, name, alias)
        if before == version:
            return "unchanged"
        aliases.put(self.tx, name, alias, version, self._actor, keep_warm_s)
        detail = {"version": version, "before": before}
        self._record("model.alias", f"{name}@{alias}", EVERYBODY, **detail)
        return "changed" if before else "added"

    def remove_alias(self, name: str, alias: str) -> None:
        """Removes an alias. Raises NotFound."""
        before = aliases.get(self.tx, name, alias)
        if before is None:
            raise NotFound(f"{name} has no alias {alias!r}")
        aliases.remove(self.tx, name, alias)
        self._record("model.unalias", f"{name}@{alias}", EVERYBODY, before=before)

    def set_route(self, route: Route) -> Route:
        """Sets the route of a model, for one tenant or for all; returns it with its salt, which
        stays that of the route before. Raises Invalid, NotFound."""
        active = self.active(route.name)
        if not active:
            raise NotFound(f"no model {route.name!r} is registered or declared")
        if problems := list(routing.problems_of(route, active)):
            raise Invalid("; ".join(problems))
        before = routes.get(self.tx, route.name, route.tenant)
        salt = before.salt if before else f"{clock.random_bits(_SALT_BITS):x}"
        route = replace(route, salt=salt)
        if route != before:
            routes.put(self.tx, route, self._actor)
            splits = {share.version: share.percent for share in route.splits}
            shadow = {route.shadow.version: route.shadow.percent} if route.shadow else {}
            detail = {"splits": splits, "sticky": route.sticky, "shadow": shadow}
            self._record("model.route", route.name, route.tenant, **detail)
        return route

    def remove_route(self, name: str, tenant: str) -> None:
        """Removes a route. Raises NotFound."""
        if routes.get(self.tx, name, tenant) is None:
            whose = "all tenants" if tenant == EVERYBODY else tenant
            raise NotFound(f"{name} has no route of {whose}")
        routes.remove(self.tx, name, tenant)
        self._record("model.unroute", name, tenant)

    # -- what there is

    def active(self, name: str) -> list[str]:
        """Returns the versions of a model that calls may go to."""
        return [model.version for model in self._served() if model.name == name]

    def _served(self) -> Registry:
        active = tuple(versions.in_state(self.tx, "active"))
        return registered.union(self._declared, Registered(active))

    def _file(self, key: str) -> Model | None:
        return self._declared.get(key)

    def _require(self, name: str, version: str) -> None:
        active = self.active(name)
        if version not in active:
            there = f"there are: {', '.join(active)}" if active else "it has none"
            raise NotFound(f"{name!r} has no active version {version!r}; {there}. Push it first")
