"""Retry policy of webhooks: delivered, another attempt later, or none any more."""

from dataclasses import dataclass
from typing import Literal

from jobs import clock
from workers.webhooks.post import Attempt

_MINUTE_S, _HOUR_S = 60.0, 3600.0

DELAYS_S = (
    5.0, 5 * _MINUTE_S, 30 * _MINUTE_S, 2 * _HOUR_S, 5 * _HOUR_S, 10 * _HOUR_S, 17 * _HOUR_S,
)  # fmt: skip
"""Delays before the second attempt, the third, …: eight over 34 hours and 35 minutes, and jitter.
"""
TRIES = len(DELAYS_S) + 1
JITTER = 0.1  # share by which a delay may be longer, so that retries spread out
MAX_RETRY_AFTER_S = 24 * _HOUR_S
HELD_BACK_S = 72 * _HOUR_S  # a delivery that a breaker held back for longer has failed

BREAKER_THRESHOLD = 10  # failures of an endpoint in a row that open its breaker
BREAKER_FIRST_S = _MINUTE_S  # for which it opens; twice as long after each failed probe
BREAKER_MOST_S = 15 * _MINUTE_S

GONE = 410


@dataclass(frozen=True, slots=True)
class Verdict:
    """Consequence of an attempt."""

    state: Literal["delivered", "pending", "failed", "disabled"]  #: the delivery's next one
    wait_s: float = 0.0  #: to the next attempt of a pending delivery


def verdict(attempt: Attempt, tries: int) -> Verdict:
    """Decides after an attempt; tries counts those made, this one included."""
    if attempt.error is None:
        return Verdict("delivered")
    if attempt.status == GONE:
        return Verdict("disabled")
    if tries >= TRIES:
        return Verdict("failed")
    wait_s = DELAYS_S[tries - 1] * (1 + JITTER * clock.random_bits(32) / (1 << 32))
    return Verdict("pending", max(wait_s, min(attempt.retry_after_s or 0.0, MAX_RETRY_AFTER_S)))
