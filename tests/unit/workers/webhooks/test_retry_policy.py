"""When a delivery is tried again, and when no more."""

from workers.webhooks.post import Attempt
from workers.webhooks.retry_policy import (
    DELAYS_S,
    JITTER,
    MAX_RETRY_AFTER_S,
    TRIES,
    Verdict,
    verdict,
)

HOUR_S = 3600.0
NO = Attempt(500, "answered 500")


def waits(answer: Attempt) -> list[float]:
    found = [verdict(answer, tries) for tries in range(1, TRIES)]
    assert {each.state for each in found} == {"pending"}
    return [each.wait_s for each in found]


def test_eight_tries_take_more_than_34_hours_whatever_the_jitter() -> None:
    assert TRIES == 8
    assert sum(DELAYS_S) > 34 * HOUR_S
    for _ in range(50):
        for wait_s, delay_s in zip(waits(NO), DELAYS_S, strict=True):
            assert delay_s <= wait_s <= delay_s * (1 + JITTER)
    assert verdict(NO, TRIES) == Verdict("failed")
    assert verdict(NO, TRIES + 1) == Verdict("failed")


def test_what_failed_together_does_not_come_back_together() -> None:
    assert len({verdict(NO, 3).wait_s for _ in range(20)}) > 10


def test_a_success_or_410_ends_it_at_any_try() -> None:
    assert verdict(Attempt(204), TRIES) == Verdict("delivered")
    assert verdict(Attempt(410, "answered 410"), 1) == Verdict("disabled")
    assert verdict(Attempt(410, "answered 410"), TRIES) == Verdict("disabled")


def test_retry_after_holds_a_delivery_back_but_not_for_ever() -> None:
    assert verdict(Attempt(429, "answered 429", 600.0), 1).wait_s == 600.0
    assert verdict(Attempt(503, "answered 503", 1.0), 2).wait_s >= DELAYS_S[1]
    assert verdict(Attempt(503, "answered 503", 1e12), 1).wait_s == MAX_RETRY_AFTER_S
