"""What answers say of quotas."""

import pickle

import pytest

from api.http import rate_limit_headers
from jobs.calls.quotas import FREE, Exceeded, Remaining, quota_of, requests_of
from jobs.errors import QuotaExceeded, StorageFull
from jobs.identity import Limit
from jobs.limits import Bound

LIMITS = (
    Limit(requests_per_s=10, job_items=3),
    Limit(model="m", tokens_per_s=2.5),
    Limit(model="other", requests_per_s=1),
    Limit(key="key_1", requests_per_s=0.001, calls_in_flight=4),
)


def test_every_limit_that_binds_is_a_policy() -> None:
    quota = quota_of("t", LIMITS, "m")
    left = [Remaining(9, 100), Remaining(0, 999_999), Remaining(2, 400)]
    assert rate_limit_headers.rate_limit_headers(quota, left) == {
        "RateLimit-Policy": '"requests";q=10;w=1, "key-requests";q=1;w=1000, '
        '"tokens/m";q=5;w=2;qu="tokens", "key-calls";q=4;qu="concurrent-requests"',
        "RateLimit": '"requests";r=9;t=1, "key-requests";r=0;t=1000, "tokens/m";r=2;t=1',
    }


def test_who_has_no_limit_that_binds_is_free() -> None:
    assert quota_of("t", (), "m") is FREE
    assert quota_of("t", (Limit(model="other", requests_per_s=1), Limit(job_items=1)), "m") is FREE
    assert requests_of("t", (Limit(model="m", requests_per_s=1), Limit(tokens_per_s=1))) is FREE


@pytest.mark.parametrize("wait_ms", [1.2, 250.0, 2500.0])
def test_nobody_is_told_to_come_again_before_the_window_ends(wait_ms: float) -> None:
    quota = quota_of("t", LIMITS, "m")
    error = rate_limit_headers.exceeded(quota, Exceeded(quota.rates[0], wait_ms))
    assert error.retry_after_s
    assert wait_ms / 1000 <= error.retry_after_s <= wait_ms / 1000 * 1.25
    assert error.headers["RateLimit"] == f'"requests";r=0;t={3 if wait_ms > 1000 else 1}'
    assert error.more["limit"] == {
        "name": "requests_per_s", "value": 10, "of": "tenant", "model": None
    }  # fmt: skip


@pytest.mark.parametrize("kind", [QuotaExceeded, StorageFull])
def test_a_refusal_is_the_same_after_its_way_from_another_process(
    kind: type[QuotaExceeded],
) -> None:
    error = kind("no room", bound=Bound("stored_bytes", 5, "m"), left=2, retry_after_s=3)
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is kind
    assert vars(found) == vars(error)
    assert rate_limit_headers.of_job(found)["RateLimit-Policy"] == (
        '"stored-bytes/m";q=5;qu="content-bytes"'
    )
