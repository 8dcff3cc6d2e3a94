"""Fallback plans of a call: as requested, then what its model's entry allows instead of a
rejection."""

from collections.abc import Iterator, Mapping
from typing import Any

from api.gateway.routing.target import Target
from jobs.immutable import immutable
from jobs.intake import validation
from jobs.models.inputs import generation
from jobs.models.model import Model
from jobs.models.registry import Registry

_EXPECTED_TOKENS = 256  # of a choice without max_tokens


@immutable
class FallbackPlan:
    """One way to serve a call."""

    model: Model
    params: Mapping[str, Any]
    size: int  #: of the input, in the model's unit
    degraded: Mapping[str, Any]  #: what the response says of it
    output_tokens: int = 0  #: that it may generate: charged to quotas, and settled by the reply
    cohort: str = ""  #: see Call
    shadow: Model | None = None  #: version that gets a copy of a call that this plan served


def fallback_plans(
    models: Registry, target: Target, value: Any, params: Mapping[str, Any],
    degraded: Mapping[str, Any] | None = None,
) -> Iterator[FallbackPlan]:  # fmt: skip
    """Yields the plans in order: as requested, truncated, then those of the fallback model.

    A fallback model ignores parameters that it doesn't know, and is skipped where it doesn't take
    the input. Its calls are of no cohort.
    """
    degraded, model = degraded or {}, target.model
    size = model.size(value, params)
    tokens = _output_tokens(value) if model.spec.generates else 0
    yield FallbackPlan(model, params, size, degraded, tokens, target.cohort, target.shadow)
    if (most := model.degrade.truncate) and size > most:
        cut = {**params, "truncate": most}
        said = {**degraded, "truncated_to": most}
        yield FallbackPlan(model, cut, most, said, cohort=target.cohort)
    if not model.degrade.fallback:
        return
    other = models.resolve(model.degrade.fallback)
    accepted = _accepted(other, value, params)
    if accepted is not None:
        said = {"fallback_from": model.key, **degraded}
        yield from fallback_plans(models, Target(other), value, accepted, said)


def plan_of(target: Target, value: Any, params: Mapping[str, Any]) -> FallbackPlan:
    """Returns the plan of one of several inputs that one version answers, or none."""
    model = target.model
    size = model.size(value, params)
    return FallbackPlan(model, params, size, {}, cohort=target.cohort, shadow=target.shadow)


def plan_of_other(
    other: Model, value: Any, params: Mapping[str, Any], cohort: str
) -> FallbackPlan | None:
    """Returns the plan of another model for a call; None where that takes no such input."""
    accepted = _accepted(other, value, params)
    if accepted is None:
        return None
    tokens = _output_tokens(value) if other.spec.generates else 0
    return FallbackPlan(other, accepted, other.size(value, accepted), {}, tokens, cohort)


def _accepted(other: Model, value: Any, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the parameters that another model knows; None where it doesn't take the input."""
    accepted = {k: v for k, v in params.items() if not validation.refuse_params(other, {k: v})}
    item = {"input": value, "params": accepted}
    return None if isinstance(validation.check(item, (), None, other, True), list) else accepted


def _output_tokens(value: Any) -> int:
    """Returns the most tokens that an input, which was checked, lets a model generate."""
    requests = generation.parse_all(value)
    given = requests[0].sampling.max_tokens
    most = _EXPECTED_TOKENS if given is None else given
    return len(requests) * requests[0].n * most
