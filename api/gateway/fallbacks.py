"""Fallback plans of a call: as requested, then what its model's entry allows instead of a
rejection."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.intake import validation
from jobs.models.inputs import generation
from jobs.models.model import Model
from jobs.models.registry import Registry

_EXPECTED_TOKENS = 256  # of a choice without max_tokens


@dataclass(frozen=True, slots=True)
class FallbackPlan:
    """One way to serve a call."""

    model: Model
    params: Mapping[str, Any]
    size: int  #: of the input, in the model's unit
    degraded: Mapping[str, Any]  #: what the response says of it
    output_tokens: int = 0  #: that it may generate: charged to quotas, and settled by the reply


def fallback_plans(
    models: Registry, model: Model, value: Any, params: Mapping[str, Any],
    degraded: Mapping[str, Any] | None = None,
) -> Iterator[FallbackPlan]:  # fmt: skip
    """Yields the plans in order: as requested, truncated, then those of the fallback model.

    A fallback model ignores parameters that it doesn't know, and is skipped where it doesn't take
    the input.
    """
    degraded = degraded or {}
    size = model.size(value, params)
    tokens = _output_tokens(value) if model.spec.generates else 0
    yield FallbackPlan(model, params, size, degraded, tokens)
    if (most := model.degrade.truncate) and size > most:
        yield FallbackPlan(
            model, {**params, "truncate": most}, most, {**degraded, "truncated_to": most}
        )
    if not model.degrade.fallback:
        return
    other = models.resolve(model.degrade.fallback)
    accepted = {k: v for k, v in params.items() if not validation.refuse_params(other, {k: v})}
    item = {"input": value, "params": accepted}
    if not isinstance(validation.check(item, (), None, other, True), list):
        yield from fallback_plans(
            models, other, value, accepted, {"fallback_from": model.key, **degraded}
        )


def _output_tokens(value: Any) -> int:
    """Returns the most tokens that an input, which was checked, lets a model generate."""
    requests = generation.parse_all(value)
    most = requests[0].sampling.max_tokens or _EXPECTED_TOKENS
    return len(requests) * requests[0].n * most
