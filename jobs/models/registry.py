"""Registry of the models that are served; free of torch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from jobs.errors import UnknownModel
from jobs.models.model import ENVELOPE_BYTES, AdaptedModel, Model
from jobs.models.routing.route import ALL_TENANTS
from jobs.models.routing.table import RoutingTable

_MOST_VIEWS = 256  # registries of tenants that are kept


class Registry:
    """Models by `name@version` and `name@alias`; a bare name means the version declared last, where
    nothing routes it.

    Adapters are models too, named `model:adapter`, and by their own name where no other model or
    adapter has it. Iteration yields the declared models alone: those that workers load.
    """

    def __init__(self, models: Sequence[Model], routing: RoutingTable | None = None) -> None:
        self.routing = routing or RoutingTable()  #: of calls by bare names and by aliases
        self.routed = bool(self.routing)  #: anything is in it
        self._models = {model.key: model for model in models}
        self._by_key = dict(self._models)
        self._versions: dict[str, list[Model]] = {}  # by name: the one declared last goes first
        self._adapted: dict[str, dict[str, AdaptedModel]] = {}  # by base's key and adapter's name
        for model in models:
            self._versions.setdefault(model.name, []).insert(0, model)
        for model in models:
            self._add_adapters(model)
        self._own_names = self._find_own_names()
        self._views: dict[frozenset[str], Registry] = {}

    def _add_adapters(self, model: Model) -> None:
        for adapter in model.adapters:
            adapted = AdaptedModel.create(model, adapter)
            self._adapted.setdefault(model.key, {})[adapter.name] = adapted
            self._by_key.setdefault(adapted.key, adapted)
            self._by_key.setdefault(f"{model.key}:{adapter.name}", adapted)
            self._versions.setdefault(adapted.name, []).insert(0, adapted)

    def _find_own_names(self) -> dict[str, list[str]]:
        """Returns the full names of the adapters that each own name may mean."""
        names: dict[str, list[str]] = {}
        for model in self.adapters:
            if (own := model.adapter_name) not in self._versions:
                full = names.setdefault(own, [])
                if model.name not in full:
                    full.append(model.name)
        return names

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    @property
    def adapters(self) -> list[AdaptedModel]:
        """All adapters, in the order of their declaration."""
        return [one for named in self._adapted.values() for one in named.values()]

    def adapters_of(self, key: str) -> Mapping[str, AdaptedModel]:
        """Returns the adapters of a version, by their own names."""
        return self._adapted.get(key, {})

    def with_adapters(self, models: Iterable[Model]) -> list[Model]:
        """Returns these models, each followed by its adapters."""
        return [one for model in models for one in (model, *self.adapters_of(model.key).values())]

    def of_tenant(self, tenant: str) -> "Registry":
        """Returns what a tenant sees: all but the adapters of others."""
        if not self._adapted:
            return self
        hidden = frozenset(model.key for model in self.adapters if not model.adapter.allows(tenant))
        if not hidden:
            return self
        if hidden not in self._views:
            if len(self._views) >= _MOST_VIEWS:
                self._views.clear()
            self._views[hidden] = Registry(
                [
                    replace(model, adapters=tuple(a for a in model.adapters if a.allows(tenant)))
                    for model in self
                ],
                self.routing,
            )
        return self._views[hidden]

    def get(self, key: str) -> Model | None:
        """Returns the model with this `name@version`, or None."""
        return self._by_key.get(key)

    def resolve(self, name: str, tenant: str = ALL_TENANTS) -> Model:
        """Returns the model for "name", "name@version" or "name@alias", to which a job is bound.

        A bare name means the version that most of the tenant's calls go to: the stable one of its
        rollout, the first of its route, or the alias `stable`; without these the version declared
        last. Raises UnknownModel.
        """
        versions = self.versions(name)
        if len(versions) == 1 or not self.routing:
            return versions[0]
        usual = self.routing.usual(versions[0].served_by.name, tenant)
        return next((model for model in versions if model.version == usual), versions[0])

    def versions(self, name: str) -> list[Model]:
        """Returns the versions of "name", the last declared first, or the one of "name@version" or
        "name@alias".

        Raises UnknownModel.
        """
        if name in self._versions:
            return self._versions[name]
        if model := self._by_key.get(name) or self._by_alias(name):
            return [model]
        full = self._own_names.get(name, [])
        if len(full) == 1:
            return self._versions[full[0]]
        if full:
            raise UnknownModel(f"{name!r} is an adapter of several models: {', '.join(full)}")
        names = ", ".join(sorted({model.key for model in self._by_key.values()}))
        raise UnknownModel(f"the model {name!r} does not exist here; there are: {names}")

    def _by_alias(self, name: str) -> Model | None:
        """Returns the model of "name@alias"; None where there is no such alias. Raises UnknownModel
        for one that means a version that isn't served."""
        if not self.routing.aliases:
            return None
        model, _, alias = name.rpartition("@")
        version = self.routing.alias(model.partition(":")[0], alias) if model else None
        if version is None:
            return None
        if found := self._by_key.get(f"{model}@{version}"):
            return found
        raise UnknownModel(
            f"{name!r} means version {version!r}, which is not served here: point the alias to "
            "another version, or declare that one"
        )

    @property
    def ambiguous_names(self) -> list[str]:
        """Bare names that stand for one of several versions."""
        own = (name for name, full in self._own_names.items() if len(full) == 1)
        return [name for name in (*self._versions, *own) if len(self.versions(name)) > 1]

    def unit(self, name: str, version: str) -> str:
        """Returns the unit of a stored job's sizes; "units" if its model is not served any more."""
        model = self._by_key.get(f"{name}@{version}")
        return model.spec.unit if model else "units"

    @cached_property
    def max_line_bytes(self) -> int:
        """Length that no item's line exceeds, whatever its model."""
        return max((model.max_line_bytes for model in self), default=ENVELOPE_BYTES)

    @property
    def stages(self) -> list[Model]:
        """All that workers load: the declared models, and the preparation of those that leave it to
        workers of their own."""
        return [stage for model in self for stage in model.stages]

    def of_pool(self, pool: str) -> list[Model]:
        """Returns the models of a pool."""
        return [model for model in self.stages if pool in model.pools]

    def pools(self) -> list[str]:
        """Returns the names of all pools, sorted."""
        return sorted({pool for model in self.stages for pool in model.pools})
