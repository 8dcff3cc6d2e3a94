"""What answers say of quotas: RateLimit-Policy and RateLimit, as the draft of the HTTPAPI working
group has them (draft-ietf-httpapi-ratelimit-headers-10).

A policy is named after what it counts, with "key-" before it where it is one key's, and "/model"
behind it where it is for one model.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil

from api.refusals import later_s
from jobs import clock
from jobs.calls.quotas import Bound, Exceeded, Left, Quota
from jobs.errors import QuotaExceeded

_NAMES = {"requests_per_s": "requests", "tokens_per_s": "tokens", "calls_in_flight": "calls"}
_UNITS = {
    "requests_per_s": "",
    "tokens_per_s": ';qu="tokens"',
    "calls_in_flight": ';qu="concurrent-requests"',
}
_MOST_W_S = 60
_SPREAD = 0.25
"""Those that were refused together don't come back together."""


def standing(quota: Quota, left: Mapping[Bound, Left]) -> dict[str, str]:
    """The headers of an answer: t is when all of a rate may be used again."""
    items = [
        f'"{_name(bound)}";r={rate.units};t={ceil(rate.full_ms / 1000)}'
        for bound, rate in left.items()
    ]
    headers = {"RateLimit-Policy": _policies(quota)}
    return headers | {"RateLimit": ", ".join(items)} if items else headers


def exceeded(quota: Quota, found: Exceeded) -> QuotaExceeded:
    """t, and Retry-After, are when the same request is let in if nobody else asks."""
    bound, at_a_time = found.bound, found.bound.name == "calls_in_flight"
    wait_s = found.wait_ms / 1000
    again = "" if at_a_time else f";t={ceil(wait_s)}"
    retry_s = later_s(found.wait_ms) if at_a_time else wait_s + clock.jitter(_SPREAD * wait_s)
    return QuotaExceeded(
        f"{_whose(bound)} may make {_what(bound)}",
        limit=described(bound),
        retry_after_s=retry_s,
        headers={
            "RateLimit-Policy": _policies(quota),
            "RateLimit": f'"{_name(bound)}";r={found.left}{again}',
        },
    )


def described(bound: Bound) -> dict[str, object]:
    """The limit, as a problem names it."""
    whose = "key" if bound.key else "tenant"
    return {"name": bound.name, "value": bound.most, "of": whose, "model": bound.model or None}


def _whose(bound: Bound) -> str:
    return f"the key {bound.key}" if bound.key else "the tenant"


def _what(bound: Bound) -> str:
    model = f" of {bound.model}" if bound.model else ""
    if bound.name == "calls_in_flight":
        return f"{bound.most:g} calls{model} at a time"
    return f"{bound.most:g} {_NAMES[bound.name]} a second{model}"


def _name(bound: Bound) -> str:
    key = "key-" if bound.key else ""
    model = f"/{bound.model}" if bound.model else ""
    return f"{key}{_NAMES[bound.name]}{model}"


@lru_cache(4096)
def _policies(quota: Quota) -> str:
    return ", ".join(f'"{_name(b)}";{_amount(b)}{_UNITS[b.name]}' for b in quota.bounds)


def _amount(bound: Bound) -> str:
    """q and w are whole numbers: 2.5 a second are 5 in 2."""
    if bound.name == "calls_in_flight":
        return f"q={bound.most:g}"
    if bound.most < 1 / _MOST_W_S:
        return f"q=1;w={ceil(1 / bound.most)}"
    rate = Fraction(bound.most).limit_denominator(_MOST_W_S)
    return f"q={rate.numerator};w={rate.denominator}"
