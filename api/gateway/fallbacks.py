"""The ways in which a call may be answered: as it was asked, and what its model's entry allows
before it is refused."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.intake import validation
from jobs.models.model import Model
from jobs.models.registry import Registry


@dataclass(frozen=True, slots=True)
class FallbackPlan:
    """size: the input's, in the model's unit; degraded: what the answer says of it."""

    model: Model
    params: Mapping[str, Any]
    size: int
    degraded: Mapping[str, Any]


def fallback_plans(
    models: Registry, model: Model, value: Any, params: Mapping[str, Any],
    degraded: Mapping[str, Any] | None = None,
) -> Iterator[FallbackPlan]:  # fmt: skip
    """As asked; cut short; then those of the fallback. A fallback goes without the parameters
    that it doesn't take, and is passed over where it doesn't take the input."""
    degraded = degraded or {}
    size = model.size(value, params)
    yield FallbackPlan(model, params, size, degraded)
    if (most := model.degrade.truncate) and size > most:
        yield FallbackPlan(
            model, {**params, "truncate": most}, most, {**degraded, "truncated_to": most}
        )
    if not model.degrade.fallback:
        return
    other = models.resolve(model.degrade.fallback)
    kept = {k: v for k, v in params.items() if not validation.refuse_params(other, {k: v})}
    wrapped = {"input": value, "params": kept}
    if not isinstance(validation.check(wrapped, (), None, other, True), list):
        yield from fallback_plans(
            models, other, value, kept, {"fallback_from": model.key, **degraded}
        )
