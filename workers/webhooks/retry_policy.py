"""What follows from the end of a try: delivered, another one later, or none any more."""

from dataclasses import dataclass
from typing import Literal

from jobs import clock
from workers.webhooks.post import Attempt

_MINUTE_S, _HOUR_S = 60.0, 3600.0

DELAYS_S = (
    5.0,
    5 * _MINUTE_S,
    30 * _MINUTE_S,
    2 * _HOUR_S,
    5 * _HOUR_S,
    10 * _HOUR_S,
    17 * _HOUR_S,
)
"""Before the second try, the third, …: eight tries over 34 hours and 35 minutes, and jitter."""

TRIES = len(DELAYS_S) + 1
JITTER = 0.1
"""A delay is up to this share longer, so that what failed together doesn't come back together."""
MAX_RETRY_AFTER_S = 24 * _HOUR_S

PATIENCE_S = 72 * _HOUR_S
"""A delivery that a breaker has held back for so long has failed."""

BREAKER_THRESHOLD = 10
"""Failures of an endpoint in a row, of any of its deliveries, that open its breaker."""
BREAKER_FIRST_S = _MINUTE_S
BREAKER_MOST_S = 15 * _MINUTE_S
"""It stays open for a minute, twice as long after each probe that fails, up to 15 minutes."""

GONE = 410


@dataclass(frozen=True, slots=True)
class Verdict:
    """state: the delivery's next one; wait_s: to the next try of one that is pending."""

    state: Literal["delivered", "pending", "failed", "disabled"]
    wait_s: float = 0.0


def verdict(answer: Attempt, tries: int) -> Verdict:
    """tries: those that were made, this one included."""
    if answer.error is None:
        return Verdict("delivered")
    if answer.status == GONE:
        return Verdict("disabled")
    if tries >= TRIES:
        return Verdict("failed")
    wait_s = DELAYS_S[tries - 1] * (1 + JITTER * clock.random_bits(32) / (1 << 32))
    return Verdict("pending", max(wait_s, min(answer.retry_after_s or 0.0, MAX_RETRY_AFTER_S)))
