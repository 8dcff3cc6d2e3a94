"""Buckets of users, and the shares that are cut of them."""

from collections import Counter

import pytest

from jobs.models.routing.bucket import BUCKETS, bucket_of, random_bucket
from jobs.models.routing.rollout import ActiveRollout
from jobs.models.routing.route import Route, Share, bucket_for, caller_for

USERS = [bucket_of("salt", "acme", f"user-{n}") for n in range(50_000)]


@pytest.mark.parametrize("percent", [0.5, 1, 5, 25, 50])
def test_a_share_of_users_is_within_half_a_point(percent: float) -> None:
    route = Route("m", [Share("1", 100 - percent), Share("2", percent)])
    share = sum(route.version_at(bucket) == "2" for bucket in USERS) / len(USERS)
    assert abs(100 * share - percent) < 0.5


def test_a_ramp_takes_nobody_back() -> None:
    before: set[int] = set()
    for percent in (0, 1, 5, 10, 25, 50, 99.99, 100):
        rollout = ActiveRollout("r", "m", "1", "2", percent)
        canary = {
            n for n, bucket in enumerate(USERS[:20_000]) if rollout.cohort_at(bucket) == "canary"
        }
        assert before <= canary
        before = canary
    assert len(before) == 20_000


def test_raising_the_last_of_three_versions_takes_nobody_back_from_it() -> None:
    before: set[int] = set()
    for last in (1, 5, 20, 60, 90):
        route = Route("m", [Share("1", 90 - last), Share("2", 10), Share("3", last)])
        chosen = {bucket for bucket in range(BUCKETS) if route.version_at(bucket) == "3"}
        assert before < chosen
        before = chosen


@pytest.mark.parametrize("percent", [0, 0.01, 1, 33.33, 50, 75, 100])
def test_the_control_has_the_canarys_size_as_far_as_there_is_room(percent: float) -> None:
    rollout = ActiveRollout("r", "m", "1", "2", percent)
    sizes = Counter(rollout.cohort_at(bucket) for bucket in range(BUCKETS))
    assert sizes["canary"] == round(percent * 100)
    assert sizes["control"] == min(sizes["canary"], BUCKETS - sizes["canary"])
    assert sizes["stable"] == BUCKETS - sizes["canary"] - sizes["control"]


def test_every_bucket_has_a_version_and_shares_are_exact() -> None:
    route = Route("m", [Share("1", 33.34), Share("2", 33.33), Share("3", 33.33)])
    sizes = Counter(route.version_at(bucket) for bucket in range(BUCKETS))
    assert sizes == {"1": 3334, "2": 3333, "3": 3333}


def test_buckets_of_two_salts_are_independent() -> None:
    both = sum(
        bucket_of("a", "t", f"{n}") < BUCKETS // 10 and bucket_of("b", "t", f"{n}") < BUCKETS // 10
        for n in range(50_000)
    )
    assert 0.007 < both / 50_000 < 0.013


def test_tenant_and_user_are_told_apart() -> None:
    assert bucket_of("s", "ab", "c") != bucket_of("s", "a", "bc")


def test_callers_are_told_apart_by_what_does_not_tell_who_they_are() -> None:
    callers = {caller_for("user", "salt", "acme", f"user-{n}") for n in range(50_000)}
    assert len(callers) == 50_000
    assert caller_for("user", "salt", "acme", "user-1") in callers
    assert caller_for("user", "other", "acme", "user-1") not in callers
    assert len({caller_for("tenant", "salt", "acme", f"user-{n}") for n in range(9)}) == 1
    assert not caller_for("user", "salt", "acme", "")
    assert not caller_for("", "salt", "acme", "ann")


def test_a_sticky_user_keeps_its_bucket_and_one_without_a_name_has_none() -> None:
    assert len({bucket_for("user", "s", "t", "ann", "") for _ in range(50)}) == 1
    assert len({bucket_for("user", "s", "t", "", "") for _ in range(50)}) > 10
    assert len({bucket_for("tenant", "s", "t", f"u{n}", f"k{n}") for n in range(50)}) == 1
    assert len({bucket_for("", "s", "t", "ann", "") for _ in range(50)}) > 10


def test_a_retry_under_an_idempotency_key_keeps_its_bucket() -> None:
    assert len({bucket_for("", "s", "t", f"u{n}", "key") for n in range(50)}) == 1
    assert bucket_for("", "s", "t", "", "key") != bucket_of("s", "t", "key")


def test_random_buckets_are_in_range() -> None:
    assert all(0 <= random_bucket() < BUCKETS for _ in range(1000))
