"""Arguments of scripts that charge quotas."""

from functools import lru_cache
from typing import Any

import orjson

from jobs.calls.keys import Keys, open_key, rates_key
from jobs.calls.quotas import NOTHING, Estimate, Quota

BILLED_TTL_S = 3600
"""Time (s) for which a call that generated is not billed again, and its charge can be settled."""


def quota_arguments(quota: Quota, size: Estimate) -> list[Any]:
    """Returns the end of PUT's arguments: the rates, and the bounds on open calls."""
    numbers = [len(quota.rates), len(quota.flights)]
    return [*numbers, *charge_arguments(quota, size), *_open_arguments(quota)]


def open_keys(quota: Quota) -> list[str]:
    """Returns the keys of the bounds on open calls."""
    return list(_open_arguments(quota)[::2])


def charge_arguments(quota: Quota, size: Estimate = NOTHING) -> list[Any]:
    """Returns the key of a quota's rates, and each of them, for a request of this size."""
    key, *rates = _rate_arguments(quota)
    costs = [
        [*rate, quota.cost(bound, size)] for bound, rate in zip(quota.rates, rates, strict=True)
    ]
    return [key, *(argument for rate in costs for argument in rate)]


@lru_cache(4096)
def _rate_arguments(quota: Quota) -> tuple[Any, ...]:
    rates = [(bound.place, bound.step_ms, bound.burst) for bound in quota.rates]
    return rates_key(quota.tenant), *rates


@lru_cache(4096)
def _open_arguments(quota: Quota) -> tuple[Any, ...]:
    """Returns keys and maxima; without spaces in keys: those of a call are joined by spaces."""
    keys = [open_key(quota.tenant, f"{bound.model}:{bound.key}") for bound in quota.flights]
    return tuple(
        argument
        for key, bound in zip(keys, quota.flights, strict=True)
        for argument in (key, bound.most)
    )


def settlement_arguments(quota: Quota, size: Estimate, keys: Keys, id: str) -> list[Any]:
    """Returns the arguments by which the end of a call settles what it was charged by an estimate:
    the key (lua/tokens.lua), for how long, and the charge. Empty where nothing was estimated."""
    estimated = [bound for bound in quota.rates if bound.name == "tokens_per_min"]
    if not (size.output_tokens and estimated):
        return []
    rates = [[bound.place, bound.step_ms] for bound in estimated]
    charge = [rates_key(quota.tenant), size.units + size.output_tokens, rates]
    if keys.clustered:
        charge += keys.unsettled, BILLED_TTL_S
    return [keys("tokens:" + id), BILLED_TTL_S, orjson.dumps(charge)]
