"""What answers say of quotas: RateLimit-Policy and RateLimit, as the draft of the HTTPAPI working
group has them (draft-ietf-httpapi-ratelimit-headers-10).

A policy is named after what it counts, with "key-" before it where it is one key's, and "/model"
behind it where it is for one model.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil

from api.http.retry_after import later_s
from jobs import clock
from jobs.calls.quotas import Exceeded, Quota, Remaining
from jobs.errors import QuotaExceeded
from jobs.limits import Bound

_NAMES = {
    "requests_per_s": "requests",
    "tokens_per_s": "tokens",
    "calls_in_flight": "calls",
    "queued_items": "queued-items",
    "stored_bytes": "stored-bytes",
}
_UNITS = {
    "requests_per_s": "",
    "tokens_per_s": ';qu="tokens"',
    "calls_in_flight": ';qu="concurrent-requests"',
    "queued_items": ';qu="items"',
    "stored_bytes": ';qu="content-bytes"',
}
_MOST_W_S = 60
_SPREAD = 0.25
"""Those that were refused together don't come back together."""


def rate_limit_headers(quota: Quota, left: Sequence[Remaining]) -> dict[str, str]:
    """The headers of an answer. left: of each rate; t is when all of it may be used again."""
    named = zip(_names(quota), left, strict=True)
    items = [f'"{name}";r={rate.units};t={ceil(rate.full_ms / 1000)}' for name, rate in named]
    headers = {"RateLimit-Policy": _policies(quota)}
    if items:
        headers["RateLimit"] = ", ".join(items)
    return headers


def exceeded(quota: Quota, found: Exceeded) -> QuotaExceeded:
    """t, and Retry-After, are when the same request is let in if nobody else asks."""
    bound, at_a_time = found.bound, found.bound.name == "calls_in_flight"
    wait_s = found.wait_ms / 1000
    window_s = None if at_a_time else wait_s
    retry_s = later_s(found.wait_ms) if at_a_time else wait_s + clock.jitter(_SPREAD * wait_s)
    return QuotaExceeded(
        f"{bound.whose} may make {_what(bound)}",
        bound=bound,
        retry_after_s=retry_s,
        headers=_headers(_policies(quota), bound, found.left, window_s),
    )


def of_job(error: QuotaExceeded) -> dict[str, str]:
    """The headers of a job that there is no room for."""
    return _headers(_policy(error.bound), error.bound, error.left, error.retry_after_s)


def _headers(policies: str, bound: Bound, left: int, window_s: float | None) -> dict[str, str]:
    again = "" if window_s is None else f";t={ceil(window_s)}"
    return {"RateLimit-Policy": policies, "RateLimit": f'"{_name(bound)}";r={left}{again}'}


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
def _names(quota: Quota) -> tuple[str, ...]:
    return tuple(map(_name, quota.rates))


@lru_cache(4096)
def _policies(quota: Quota) -> str:
    return ", ".join(map(_policy, quota.bounds))


def _policy(bound: Bound) -> str:
    return f'"{_name(bound)}";{_amount(bound)}{_UNITS[bound.name]}'


def _amount(bound: Bound) -> str:
    """q and w are whole numbers: 2.5 a second are 5 in 2."""
    if bound.name not in ("requests_per_s", "tokens_per_s"):
        return f"q={bound.most:.0f}"
    if bound.most < 1 / _MOST_W_S:
        return f"q=1;w={ceil(1 / bound.most)}"
    rate = Fraction(bound.most).limit_denominator(_MOST_W_S)
    return f"q={rate.numerator};w={rate.denominator}"
