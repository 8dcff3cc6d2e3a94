"""Anthropic's headers of rate limits."""

from datetime import UTC, datetime

import pytest

from api.compat.anthropic.rate_limits import anthropic_headers
from api.http.rate_limit_headers import quota_exceeded, rate_limit_headers
from jobs import clock
from jobs.calls.quotas import Exceeded, Remaining, quota_of
from jobs.identity import Limit


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 5, 1, 12, 0, 0, 400_000, UTC))


def test_each_kind_of_limit_has_its_headers() -> None:
    limits = Limit(requests_per_s=10, tokens_per_s=50, tokens_per_min=1000)
    quota = quota_of("t", (limits,), "m")
    left = [Remaining(9, 100), Remaining(40, 200), Remaining(900, 6000)]
    assert anthropic_headers(rate_limit_headers(quota, left)) == {
        "anthropic-ratelimit-requests-limit": "10",
        "anthropic-ratelimit-requests-remaining": "9",
        "anthropic-ratelimit-requests-reset": "2026-05-01T12:00:01Z",
        "anthropic-ratelimit-input-tokens-limit": "50",
        "anthropic-ratelimit-input-tokens-remaining": "40",
        "anthropic-ratelimit-input-tokens-reset": "2026-05-01T12:00:01Z",
        "anthropic-ratelimit-tokens-limit": "1000",
        "anthropic-ratelimit-tokens-remaining": "900",
        "anthropic-ratelimit-tokens-reset": "2026-05-01T12:00:06Z",
    }
    assert anthropic_headers({"content-type": "application/json"}) == {}


def test_of_two_limits_of_a_kind_that_with_the_least_left_is_told() -> None:
    limits = Limit(tokens_per_min=1000), Limit(model="m", tokens_per_min=500)
    left = [Remaining(900, 6000), Remaining(20, 57_600)]
    found = anthropic_headers(rate_limit_headers(quota_of("t", limits, "m"), left))
    assert found["anthropic-ratelimit-tokens-limit"] == "500"
    assert found["anthropic-ratelimit-tokens-remaining"] == "20"


def test_a_refused_request_is_told_what_refused_it() -> None:
    quota = quota_of("t", (Limit(requests_per_s=5, tokens_per_min=600),), "m")
    error = quota_exceeded(quota, Exceeded(quota.rates[1], 30_000, 7))
    assert anthropic_headers(error.headers) == {
        "anthropic-ratelimit-tokens-limit": "600",
        "anthropic-ratelimit-tokens-remaining": "7",
        "anthropic-ratelimit-tokens-reset": "2026-05-01T12:00:30Z",
    }
