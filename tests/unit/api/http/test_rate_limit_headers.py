"""What answers say of quotas, also in OpenAI's and Anthropic's headers."""

import pickle
from datetime import UTC, datetime

import pytest

from api.compat.anthropic.rate_limits import anthropic_headers
from api.http.rate_limit_headers import quota_exceeded, quota_headers, rate_limit_headers
from jobs import clock
from jobs.calls.quotas import FREE, Exceeded, Remaining, quota_of, requests_of
from jobs.errors import QuotaExceeded, StorageFull
from jobs.identity import Limit
from jobs.limits import Bound
from tests.support.cases import each

LIMITS = (
    Limit(requests_per_s=10, job_items=3),
    Limit(model="m", tokens_per_s=2.5),
    Limit(model="other", requests_per_s=1),
    Limit(key="key_1", requests_per_s=0.001, calls_in_flight=4),
)


def test_every_limit_that_binds_is_a_policy_and_without_any_all_is_free() -> None:
    quota = quota_of("t", LIMITS, "m")
    left = [Remaining(9, 100), Remaining(0, 999_999), Remaining(2, 400)]
    assert rate_limit_headers(quota, left) == {
        "RateLimit-Policy": '"requests";q=10;w=1, "key-requests";q=1;w=1000, '
        '"tokens/m";q=5;w=2;qu="tokens", "key-calls";q=4;qu="concurrent-requests"',
        "RateLimit": '"requests";r=9;t=1, "key-requests";r=0;t=1000, "tokens/m";r=2;t=1',
    }
    assert quota_of("t", (), "m") is FREE
    assert quota_of("t", (Limit(model="other", requests_per_s=1), Limit(job_items=1)), "m") is FREE
    assert requests_of("t", (Limit(model="m", requests_per_s=1), Limit(tokens_per_s=1))) is FREE


MINUTE = (Limit(tokens_per_min=1000), Limit(model="m", tokens_per_min=500, requests_per_s=1))


def test_tokens_a_minute_have_the_names_that_clients_of_openai_read() -> None:
    quota = quota_of("t", MINUTE, "m")
    left = [Remaining(1, 0), Remaining(900, 6000), Remaining(20, 57_600)]
    headers = rate_limit_headers(quota, left)
    assert headers["RateLimit-Policy"] == (
        '"requests/m";q=1;w=1, "tokens-per-minute";q=1000;w=60;qu="tokens", '
        '"tokens-per-minute/m";q=500;w=60;qu="tokens"'
    )
    openai = {name: value for name, value in headers.items() if name.startswith("x-ratelimit")}
    assert openai == {
        "x-ratelimit-limit-tokens": "500",
        "x-ratelimit-remaining-tokens": "20",
        "x-ratelimit-reset-tokens": "57.6s",
    }


def test_a_reset_is_written_as_openai_writes_it() -> None:
    quota = quota_of("t", MINUTE, "m")
    resets = {0.0: "0ms", 16.2: "17ms", 1000.0: "1s", 59_995.0: "1m0s", 361_250.0: "6m1.25s"}
    for ms, case in each(resets):
        with case:
            error = quota_exceeded(quota, Exceeded(quota.rates[-1], ms, 7))
            assert error.headers["x-ratelimit-reset-tokens"] == resets[ms]
            assert error.headers["x-ratelimit-remaining-tokens"] == "7"
            assert error.detail == "the tenant may make 500 tokens a minute of m"


def test_nobody_is_told_to_come_again_before_the_window_ends() -> None:
    quota = quota_of("t", LIMITS, "m")
    for wait_ms, case in each([1.2, 250.0, 2500.0]):
        with case:
            error = quota_exceeded(quota, Exceeded(quota.rates[0], wait_ms))
            assert wait_ms / 1000 <= (error.retry_after_s or 0) <= wait_ms / 1000 * 1.25
            assert error.headers["RateLimit"] == f'"requests";r=0;t={3 if wait_ms > 1000 else 1}'
            limit = {"name": "requests_per_s", "value": 10, "of": "tenant", "model": None}
            assert error.more["limit"] == limit


def test_a_refusal_is_the_same_after_its_way_from_another_process() -> None:
    for kind in (QuotaExceeded, StorageFull):
        error = kind("no room", bound=Bound("stored_bytes", 5, "m"), left=2, retry_after_s=3)
        found = pickle.loads(pickle.dumps(error))
        assert type(found) is kind
        assert vars(found) == vars(error)
        policy = quota_headers(found)["RateLimit-Policy"]
        assert policy == '"stored-bytes/m";q=5;qu="content-bytes"'


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


def test_the_limit_with_the_least_left_or_that_refused_is_told() -> None:
    limits = Limit(tokens_per_min=1000), Limit(model="m", tokens_per_min=500)
    left = [Remaining(900, 6000), Remaining(20, 57_600)]
    found = anthropic_headers(rate_limit_headers(quota_of("t", limits, "m"), left))
    assert found["anthropic-ratelimit-tokens-limit"] == "500"
    assert found["anthropic-ratelimit-tokens-remaining"] == "20"
    quota = quota_of("t", (Limit(requests_per_s=5, tokens_per_min=600),), "m")
    error = quota_exceeded(quota, Exceeded(quota.rates[1], 30_000, 7))
    assert anthropic_headers(error.headers) == {
        "anthropic-ratelimit-tokens-limit": "600",
        "anthropic-ratelimit-tokens-remaining": "7",
        "anthropic-ratelimit-tokens-reset": "2026-05-01T12:00:30Z",
    }
