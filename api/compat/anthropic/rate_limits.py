"""Rate limits as Anthropic's clients read them: anthropic-ratelimit-tokens-remaining and the like.

https://platform.claude.com/docs/en/api/rate-limits#response-headers
"""

import re
from collections.abc import Mapping
from datetime import timedelta

from jobs import clock

_POLICY = re.compile(r'"([^"]*)";q=(\d+)')
_LEFT = re.compile(r'"([^"]*)";r=(\d+);t=(\d+)')
_KINDS = {"requests": "requests", "tokens": "input-tokens", "tokens-per-minute": "tokens"}


def anthropic_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers for what `RateLimit-Policy` and `RateLimit` say; of several limits of one
    kind that of which least is left."""
    limits = dict(_POLICY.findall(headers.get("RateLimit-Policy", "")))
    left: dict[str, tuple[int, int, str]] = {}
    for name, units, seconds in _LEFT.findall(headers.get("RateLimit", "")):
        kind = _KINDS.get(name.removeprefix("key-").partition("/")[0])
        if kind and name in limits:
            found = int(units), int(seconds), limits[name]
            left[kind] = min(found, left.get(kind, found))
    now, more = clock.now(), dict[str, str]()
    for kind, (units, seconds, limit) in left.items():
        start = f"anthropic-ratelimit-{kind}"  # t is rounded up: whole seconds are enough
        more[f"{start}-limit"] = limit
        more[f"{start}-remaining"] = str(units)
        more[f"{start}-reset"] = f"{now + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
    return more
