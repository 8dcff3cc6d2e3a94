"""Responses of the HTTP client."""

from datetime import timedelta
from email.utils import format_datetime

import pytest

from jobs import clock
from workers.http_client.client import Response

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("120", 120.0), (" 5 ", 5.0), ("0", 0.0), ("", None), ("soon", None), ("-5", None),
     ("1.5", None), ("9" * 400, float("inf")), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)],
)  # fmt: skip
def test_retry_after_in_seconds_or_nothing(value: str, seconds: float | None) -> None:
    assert Response(429, {"retry-after": value}, b"").retry_after_s == seconds


def test_retry_after_as_a_date_counts_from_now() -> None:
    date = format_datetime(clock.now() + timedelta(hours=1), usegmt=True)
    left_s = Response(429, {"retry-after": date}, b"").retry_after_s or 0
    assert HOUR_S - 60 < left_s <= HOUR_S
