"""When a delivery is tried again, and when no more."""

from datetime import timedelta
from email.utils import format_datetime

import pytest

from jobs import clock
from workers.http_client.post import WebhookResponse, retry_after_s
from workers.webhooks.retry_policy import (
    DELAYS_S,
    JITTER,
    MAX_RETRY_AFTER_S,
    TRIES,
    Verdict,
    verdict,
)

HOUR_S = 3600.0
NO = WebhookResponse(500, "answered 500")


def waits(answer: WebhookResponse) -> list[float]:
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


def test_a_success_ends_it_at_any_try() -> None:
    assert verdict(WebhookResponse(204), TRIES) == Verdict("delivered")


def test_410_disables_even_at_the_last_try() -> None:
    assert verdict(WebhookResponse(410, "answered 410"), 1) == Verdict("disabled")
    assert verdict(WebhookResponse(410, "answered 410"), TRIES) == Verdict("disabled")


def test_no_try_is_made_before_retry_after() -> None:
    assert verdict(WebhookResponse(429, "answered 429", 600.0), 1).wait_s == 600.0
    assert verdict(WebhookResponse(503, "answered 503", 1.0), 2).wait_s >= DELAYS_S[1]


def test_retry_after_cannot_hold_a_delivery_back_for_ever() -> None:
    assert verdict(WebhookResponse(503, "answered 503", 1e12), 1).wait_s == MAX_RETRY_AFTER_S


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("120", 120.0), (" 5 ", 5.0), ("0", 0.0), ("", None), ("soon", None), ("-5", None),
     ("1.5", None), ("9" * 400, float("inf")), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)],
)  # fmt: skip
def test_retry_after_in_seconds_or_nothing(value: str, seconds: float | None) -> None:
    assert retry_after_s(value) == seconds


def test_retry_after_as_a_date_counts_from_now() -> None:
    date = format_datetime(clock.now() + timedelta(hours=1), usegmt=True)
    assert HOUR_S - 60 < (retry_after_s(date) or 0) <= HOUR_S
