"""The models that are served: what each accepts, its limits, its latency target.

Free of torch: the api checks inputs and sizes calls by the same entry that tells a worker which
engine to load.
"""

from collections.abc import Iterator
from functools import cached_property

from jobs.errors import UnknownModel
from jobs.models.model import Model


class Registry:
    """All models, by `name@version`; a bare name means the version declared last."""

    def __init__(self, models: list[Model]) -> None:
        self._by_key = {model.key: model for model in models}
        self._versions: dict[str, list[Model]] = {}  # by name: the one declared last goes first
        for model in models:
            self._versions.setdefault(model.name, []).insert(0, model)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._by_key.values())

    def get(self, key: str) -> Model | None:
        """The one that has this `name@version`."""
        return self._by_key.get(key)

    def resolve(self, asked: str) -> Model:
        """The model for "name" or "name@version"; raises UnknownModel."""
        return self.versions(asked)[0]

    def versions(self, asked: str) -> list[Model]:
        """All that "name" may mean, the one declared last first; "name@version" means one. Raises
        UnknownModel."""
        if model := self._by_key.get(asked):
            return [model]
        if asked not in self._versions:
            names = ", ".join(sorted(self._by_key))
            raise UnknownModel(f"no model {asked!r} is served here; there are: {names}")
        return self._versions[asked]

    def unit(self, name: str, version: str) -> str:
        """What the sizes of a stored job count, whether or not its model is still served."""
        model = self._by_key.get(f"{name}@{version}")
        return model.spec.unit if model else "units"

    @cached_property
    def max_line_bytes(self) -> int:
        """More than the longest item of any model has as JSON, however it is escaped."""
        return max(model.max_line_bytes for model in self)

    def of_pool(self, pool: str) -> list[Model]:
        return [model for model in self if model.pool == pool]

    def pools(self) -> list[str]:
        return sorted({model.pool for model in self})
