"""The ways in which a call may be answered: as it was asked, and what its model's entry allows
before it is refused."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs import items
from jobs.registry import Model, Registry


@dataclass(frozen=True, slots=True)
class Way:
    """size: the input's, in the model's unit; degraded: what the answer says of it."""

    model: Model
    params: Mapping[str, Any]
    size: int
    degraded: Mapping[str, Any]


def ways(
    models: Registry, model: Model, value: Any, params: Mapping[str, Any],
    degraded: Mapping[str, Any] | None = None,
) -> Iterator[Way]:  # fmt: skip
    """As asked; cut short; then those of the fallback. A fallback goes without the parameters
    that it doesn't take, and is passed over where it doesn't take the input."""
    degraded = degraded or {}
    size = model.size(value, params)
    yield Way(model, params, size, degraded)
    if (most := model.degrade.truncate) and size > most:
        yield Way(model, {**params, "truncate": most}, most, {**degraded, "truncated_to": most})
    if not model.degrade.fallback:
        return
    other = models.resolve(model.degrade.fallback)
    kept = {k: v for k, v in params.items() if not items.refuse_params(other, {k: v})}
    wrapped = {"input": value, "params": kept}
    if not isinstance(items.check(wrapped, (), None, other, True), list):
        yield from ways(models, other, value, kept, {"fallback_from": model.key, **degraded})
