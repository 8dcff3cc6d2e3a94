"""Admission of calls where the ready workers are of several tiers (jobs/calls/tiers/tier.py).

What waits before a call is launched by all tiers, each at its own pace. A worker leaves a call that
it can't answer in time, so a call is in time where at least one slot that could answer it then is
free, and all tiers together have launched what comes before it. `lua/mixed.lua` does the same.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import orjson

from jobs.calls.lanes import Terms

SLACK = 1.15
"""Times its predicted launch that a call must have left for a slower worker: it takes only what it
answers in time in 95 % of cases."""

EVER_MS = 1e12
"""Time that stands for infinity in scripts."""

_ROUNDING = 1e-6


def in_time(
    terms: Terms, free_ms: Sequence[Sequence[float]], others_ms: float, rows: int, before: int,
    spot: Sequence[bool] = (),
) -> bool:  # fmt: skip
    """Returns True if some tier can answer a new call in time.

    free_ms: by tier, time until each slot is free; others_ms: launches of other lanes that come
    before; rows, before: calls of its own lane, and those of them that come before it; spot: by
    tier, of a call that is left to tiers that aren't: these alone launch its lane.
    """
    spot = spot or [False] * len(free_ms)
    own_ahead = before // terms.full_rows * terms.full_rows if any(spot) else -1
    tiers = list(_by_tier(terms, free_ms))
    latest_ms = [
        its.allowed_ms - its.launch_ms(rows, before) * (SLACK if n else 1.0)
        for n, (its, _) in enumerate(tiers)
    ]
    ahead = _rows_ahead(terms, others_ms, before)
    for (_, own_free_ms), starts_ms, is_spot in zip(tiers, latest_ms, spot, strict=True):
        if is_spot or not any(free <= starts_ms for free in own_free_ms):
            continue
        launched = [
            its.full_rows
            * sum(_launches(free, min(starts_ms, latest), its.full_ms) for free in its_free_ms)
            for (its, its_free_ms), latest in zip(tiers, latest_ms, strict=True)
        ]
        own = sum(count for count, its_spot in zip(launched, spot, strict=True) if not its_spot)
        if sum(launched) > ahead and own > own_ahead:
            return True
    return False


@lru_cache(1024)
def pack_terms(terms: Terms, *, stays: bool) -> str:
    """Returns the terms of all tiers for `lua/mixed.lua`. stays: spot workers don't take the call
    while others are ready."""
    tiers = [
        (min(its.allowed_ms, EVER_MS), its.one_ms, its.step_ms, its.full_rows, its.full_ms)
        for its in (terms, *terms.others)
    ]
    return orjson.dumps({"slack": SLACK, "tiers": tiers, "stays": stays}).decode()


def mixed_wait_ms(
    terms: Terms, free_ms: Sequence[Sequence[float]], others_ms: float, before: int
) -> float:
    """Returns about how long a new call waits for its launch, as if slots gave rows evenly."""
    tiers = list(_by_tier(terms, free_ms))
    rows_per_ms = sum(
        len(free) * its.full_rows / max(its.full_ms, _ROUNDING) for its, free in tiers
    )
    first_ms = min(min(free) for _, free in tiers)
    return first_ms + _rows_ahead(terms, others_ms, before) / rows_per_ms


def _by_tier(
    terms: Terms, free_ms: Sequence[Sequence[float]]
) -> Iterator[tuple[Terms, Sequence[float]]]:
    """Yields the terms and slots of each tier; an api that knows fewer tiers takes the slowest that
    it knows for the rest."""
    known = terms, *terms.others
    for n, free in enumerate(free_ms):
        yield known[min(n, len(known) - 1)], free


def _rows_ahead(terms: Terms, others_ms: float, before: int) -> int:
    """Returns the rows of the full launches that leave before a call's own."""
    others = others_ms / terms.full_ms if terms.full_ms else 0.0
    return terms.full_rows * int(before // terms.full_rows + others + _ROUNDING)


def _launches(free_ms: float, until_ms: float, full_ms: float) -> int:
    """Returns the full launches that a slot can start from when it is free until some time."""
    if until_ms < free_ms:
        return 0
    return int((until_ms - free_ms) / max(full_ms, _ROUNDING) + _ROUNDING) + 1
