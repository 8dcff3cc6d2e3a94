"""Registry of the models that are served; free of torch."""

from collections.abc import Iterator
from functools import cached_property

from jobs.errors import UnknownModel
from jobs.models.model import Model


class Registry:
    """Models by `name@version`; a bare name means the version declared last."""

    def __init__(self, models: list[Model]) -> None:
        self._by_key = {model.key: model for model in models}
        self._versions: dict[str, list[Model]] = {}  # by name: the one declared last goes first
        for model in models:
            self._versions.setdefault(model.name, []).insert(0, model)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._by_key.values())

    def get(self, key: str) -> Model | None:
        """Returns the model with this `name@version`, or None."""
        return self._by_key.get(key)

    def resolve(self, name: str) -> Model:
        """Returns the model for "name" or "name@version". Raises UnknownModel."""
        return self.versions(name)[0]

    def versions(self, name: str) -> list[Model]:
        """Returns the versions of "name", the last declared first, or the one of "name@version".

        Raises UnknownModel.
        """
        if model := self._by_key.get(name):
            return [model]
        if name not in self._versions:
            names = ", ".join(sorted(self._by_key))
            raise UnknownModel(f"no model {name!r} is served here; there are: {names}")
        return self._versions[name]

    @property
    def ambiguous_names(self) -> list[str]:
        """Bare names that stand for one of several versions."""
        return [name for name, versions in self._versions.items() if len(versions) > 1]

    def unit(self, name: str, version: str) -> str:
        """Returns the unit of a stored job's sizes; "units" if its model is not served any more."""
        model = self._by_key.get(f"{name}@{version}")
        return model.spec.unit if model else "units"

    @cached_property
    def max_line_bytes(self) -> int:
        """Length that no item's line exceeds, whatever its model."""
        return max(model.max_line_bytes for model in self)

    def of_pool(self, pool: str) -> list[Model]:
        """Returns the models of a pool."""
        return [model for model in self if model.pool == pool]

    def pools(self) -> list[str]:
        """Returns the names of all pools, sorted."""
        return sorted({model.pool for model in self})
