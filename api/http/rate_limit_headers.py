"""RateLimit-Policy and RateLimit headers (draft-ietf-httpapi-ratelimit-headers-10).

A policy is named after what it counts, with the prefix "key-" for a limit of one key, and the
suffix "/model" for a limit of one model.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil

from api.http.retry_after import retry_delay_s
from jobs import clock
from jobs.calls.quotas import Exceeded, Quota, Remaining
from jobs.errors import QuotaExceeded
from jobs.limits import Bound

_NAMES = {
    "requests_per_s": "requests",
    "tokens_per_s": "tokens",
    "tokens_per_min": "tokens-per-minute",
    "calls_in_flight": "calls",
    "open_streams": "streams",
    "queued_items": "queued-items",
    "stored_bytes": "stored-bytes",
}
_UNITS = {
    "requests_per_s": "",
    "tokens_per_s": ';qu="tokens"',
    "tokens_per_min": ';qu="tokens"',
    "calls_in_flight": ';qu="concurrent-requests"',
    "open_streams": ';qu="concurrent-requests"',
    "queued_items": ';qu="items"',
    "stored_bytes": ';qu="content-bytes"',
}
_MAX_WINDOW_S = 60
_JITTER = 0.25  #: Spreads retries of clients that were rejected together.


def rate_limit_headers(quota: Quota, left: Sequence[Remaining]) -> dict[str, str]:
    """Returns the headers of a response. `left` is of each rate; t is when it is full again."""
    rates = zip(_names(quota), left, strict=True)
    limits = [f'"{name}";r={rate.units};t={ceil(rate.full_ms / 1000)}' for name, rate in rates]
    headers = {"RateLimit-Policy": _policies(quota)}
    if limits:
        headers["RateLimit"] = ", ".join(limits)
    if minutes := _of_minutes(quota):
        n, rest = min(((n, left[n]) for n in minutes), key=lambda pair: pair[1].units)
        headers |= _openai_headers(quota.rates[n], rest.units, rest.full_ms)
    return headers


def quota_exceeded(quota: Quota, rejection: Exceeded) -> QuotaExceeded:
    """Returns the error; t and Retry-After are when the request is admitted if no other comes."""
    bound, concurrency = rejection.bound, rejection.bound.name == "calls_in_flight"
    wait_s = rejection.wait_ms / 1000
    window_s = None if concurrency else wait_s
    of_minute = bound.name == "tokens_per_min"
    retry_s = (
        retry_delay_s(rejection.wait_ms) if concurrency else wait_s + clock.jitter(_JITTER * wait_s)
    )
    return QuotaExceeded(
        f"{bound.whose} may make {_description(bound)}",
        bound=bound,
        retry_after_s=retry_s,
        headers=_headers(_policies(quota), bound, rejection.left, window_s)
        | (_openai_headers(bound, rejection.left, rejection.wait_ms) if of_minute else {}),
    )


def quota_headers(error: QuotaExceeded) -> dict[str, str]:
    """Returns the headers of a job or stream for which there is no room."""
    window_s = None if error.bound.name == "open_streams" else error.retry_after_s
    return _headers(_policy(error.bound), error.bound, error.left, window_s)


def _headers(policies: str, bound: Bound, left: int, window_s: float | None) -> dict[str, str]:
    reset = "" if window_s is None else f";t={ceil(window_s)}"
    return {"RateLimit-Policy": policies, "RateLimit": f'"{_name(bound)}";r={left}{reset}'}


def _openai_headers(bound: Bound, left: int, reset_ms: float) -> dict[str, str]:
    """Returns what OpenAI's clients read of tokens a minute."""
    return {
        "x-ratelimit-limit-tokens": f"{bound.most:.0f}",
        "x-ratelimit-remaining-tokens": str(left),
        "x-ratelimit-reset-tokens": _go_duration(reset_ms),
    }


def _go_duration(ms: float) -> str:
    """Writes a duration as OpenAI does: 6m0s, 1.2s, 17ms."""
    if ms < 1000:
        return f"{ceil(ms)}ms"
    minutes, seconds = divmod(ceil(ms / 10) / 100, 60)
    return f"{minutes:.0f}m{seconds:.4g}s" if minutes else f"{seconds:.4g}s"


def _description(bound: Bound) -> str:
    model = f" of {bound.model}" if bound.model else ""
    if bound.name == "calls_in_flight":
        return f"{bound.most:g} calls{model} at a time"
    if bound.name == "tokens_per_min":
        return f"{bound.most:g} tokens a minute{model}"
    return f"{bound.most:g} {_NAMES[bound.name]} a second{model}"


def _name(bound: Bound) -> str:
    key = "key-" if bound.key else ""
    model = f"/{bound.model}" if bound.model else ""
    return f"{key}{_NAMES[bound.name]}{model}"


@lru_cache(4096)
def _names(quota: Quota) -> tuple[str, ...]:
    return tuple(map(_name, quota.rates))


@lru_cache(4096)
def _of_minutes(quota: Quota) -> tuple[int, ...]:
    """Returns the places of the rates that are tokens a minute."""
    return tuple(n for n, bound in enumerate(quota.rates) if bound.name == "tokens_per_min")


@lru_cache(4096)
def _policies(quota: Quota) -> str:
    return ", ".join(map(_policy, quota.bounds))


def _policy(bound: Bound) -> str:
    return f'"{_name(bound)}";{_amount(bound)}{_UNITS[bound.name]}'


def _amount(bound: Bound) -> str:
    """Returns q and w as whole numbers: 2.5 a second are 5 in 2."""
    if bound.name == "tokens_per_min":
        return f"q={bound.most:.0f};w=60"
    if bound.name not in ("requests_per_s", "tokens_per_s"):
        return f"q={bound.most:.0f}"
    if bound.most < 1 / _MAX_WINDOW_S:
        return f"q=1;w={ceil(1 / bound.most)}"
    rate = Fraction(bound.most).limit_denominator(_MAX_WINDOW_S)
    return f"q={rate.numerator};w={rate.denominator}"
