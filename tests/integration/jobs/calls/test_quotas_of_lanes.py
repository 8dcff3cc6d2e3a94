"""What a caller may use at most: of a second, and at a time."""

from itertools import count
from time import monotonic

import pytest
from redis import Redis

from jobs.calls.accounting.quota_arguments import charge_arguments
from jobs.calls.lanes import Rejection, Terms
from jobs.calls.messages import Call
from jobs.calls.quotas import Quota, quota_of, requests_of
from jobs.calls.scripts import CHARGE
from jobs.identity import Limit
from jobs.models.inputs.generation import TokenUsage
from tests.integration.jobs.calls.conftest import lanes_of
from tests.integration.jobs.calls.made import Lanes
from tests.integration.jobs.calls.test_call_deaths_in_lanes import LONE, died
from tests.support.wait import eventually

_numbers = count()
MODEL = "m"


@pytest.fixture(params=["memory", "redis"])
def unserved(request: pytest.FixtureRequest) -> Lanes:
    """Lanes with quotas; on a cluster the gateway checks them (test_on_a_cluster.py)."""
    return lanes_of(request)


def bound(*limits: Limit, tenant: str = "tenant") -> Quota:
    return quota_of(tenant, limits, MODEL)


def call(size: int = 1, tenant: str = "tenant") -> Call:
    return Call(f"call-{next(_numbers)}", "{}/64", tenant, None, size, "api-1")


def asked(lanes: Lanes, quota: Quota, size: int = 1, **bounds: int) -> Rejection | None:
    return lanes.refused(call(size), quota=quota, most=bounds.pop("most", 10_000), **bounds)


def waits_ms(refused: Call | Rejection | None, name: str | None = None) -> float:
    """How long a refused call is to wait; name: of the bound that is exceeded."""
    assert isinstance(refused, Rejection)
    assert refused.why == "quota"
    assert refused.exceeded
    assert refused.exceeded.wait_ms == refused.wait_ms
    assert name in (None, refused.exceeded.bound.name)
    return refused.wait_ms


def assert_waits(
    lanes: Lanes, quota: Quota, expected_ms: float, size: int = 1, name: str | None = None
) -> None:
    """A call would wait so long, less what has passed since the test began."""
    waits = waits_ms(asked(lanes, quota, size), name)
    assert expected_ms - lanes.age_ms() <= waits <= expected_ms


def test_as_many_requests_as_a_second_has_come_in_at_once_and_no_more(lanes: Lanes) -> None:
    quota = bound(Limit(requests_per_s=0.005))
    assert asked(lanes, quota) is None
    assert_waits(lanes, quota, 200_000)
    several = bound(Limit(model=MODEL, requests_per_s=4))
    since_s = monotonic()
    came = [asked(lanes, several) for _ in range(8)]
    took_s = monotonic() - since_s
    assert 4 <= came.count(None) <= 4 + 4 * took_s + 1
    assert all(0 < waits_ms(one) <= 250 for one in came if one)
    assert took_s > 1 or came[-1]


def test_who_waits_as_long_as_it_was_told_is_let_in(lanes: Lanes) -> None:
    quota = bound(Limit(requests_per_s=10, tokens_per_s=50))
    for _ in range(3):
        while (no := asked(lanes, quota, size=6)) is None:
            pass
        lanes.passed(lanes.look().now_ms + waits_ms(no))
        assert asked(lanes, quota, size=6) is None


def test_tokens_are_counted_in_the_models_unit(lanes: Lanes) -> None:
    quota = bound(Limit(tokens_per_s=10))
    while (no := asked(lanes, quota, size=8)) is None:
        pass
    assert 0 < waits_ms(no, "tokens_per_s") <= 600
    assert no.exceeded
    assert 2 <= no.exceeded.left < 8
    assert asked(lanes, quota, size=2) is None


def test_an_input_larger_than_the_bucket_is_let_in_at_its_full_and_paid_after(lanes: Lanes) -> None:
    quota = bound(Limit(tokens_per_s=100))
    assert asked(lanes, quota, size=35_000) is None
    assert_waits(lanes, quota, 350_000, size=35_000)
    assert_waits(lanes, quota, 349_100, size=10)


def test_a_clock_that_steps_back_keeps_nobody_out_for_longer(redis_client: Redis) -> None:
    quota = requests_of("tenant", (Limit(requests_per_s=2),))
    other = requests_of("tenant", (Limit(requests_per_s=100),))
    charge = redis_client.register_script(CHARGE)

    def asked(quota: Quota) -> float:
        key, *arguments = charge_arguments(quota)
        return float(charge([key], arguments)[1])

    assert not asked(other)
    while not asked(quota):
        pass
    key = charge_arguments(quota)[0]
    for field, at_ms in redis_client.hgetall(key).items():
        redis_client.hset(key, field, float(at_ms) + 3_600_000)  # the clock is an hour behind them
    waits = asked(quota)
    assert 0 < waits <= 500
    assert asked(other) == 0
    eventually(lambda: not asked(quota))


def test_one_bound_that_is_exceeded_charges_none(lanes: Lanes) -> None:
    wide, narrow = Limit(tokens_per_min=2), Limit(model=MODEL, requests_per_s=0.01)
    assert asked(lanes, bound(wide, narrow)) is None
    assert waits_ms(asked(lanes, bound(wide, narrow)), "requests_per_s")
    assert asked(lanes, bound(wide)) is None
    assert waits_ms(asked(lanes, bound(wide)))


def test_of_several_bounds_the_one_that_keeps_out_for_longest_is_told(lanes: Lanes) -> None:
    quota = bound(Limit(requests_per_s=1, tokens_per_s=1))
    assert asked(lanes, quota, size=500) is None
    assert_waits(lanes, quota, 500_000, name="tokens_per_s")


@pytest.mark.parametrize("why", ["no_worker", "overloaded", "late"])
def test_a_call_refused_for_another_reason_is_not_charged(launched: Lanes, why: str) -> None:
    quota = bound(Limit(requests_per_s=0.01, tokens_per_s=0.01, calls_in_flight=1))
    hopeless, bounds = Terms(), {"most": 10_000}
    if why == "no_worker":
        launched.lanes.announce("worker-1", 0)
    elif why == "overloaded":
        bounds = {"most": 0}
    else:
        hopeless = Terms(one_ms=100, full_ms=100, allowed_ms=1)
    no = launched.refused(call(), hopeless, quota, **bounds)
    assert no
    assert no.why == why
    launched.lanes.announce("worker-1", 60)
    assert asked(launched, quota) is None
    assert waits_ms(asked(launched, quota))


def test_tenants_and_keys_have_buckets_of_their_own(lanes: Lanes) -> None:
    one, other = (Limit(key=key, requests_per_s=0.01) for key in ("key_a", "key_b"))
    for quota in (bound(one), bound(other), bound(one, tenant="other")):
        assert asked(lanes, quota) is None
        assert waits_ms(asked(lanes, quota))


def test_limits_of_other_models_dont_bind_and_a_raised_one_counts_at_once(lanes: Lanes) -> None:
    other = bound(Limit(model="other", requests_per_s=0.01, calls_in_flight=1))
    assert [asked(lanes, other) for _ in range(3)] == [None] * 3
    assert asked(lanes, bound(Limit(requests_per_s=0.005))) is None
    assert waits_ms(asked(lanes, bound(Limit(requests_per_s=0.005))))
    assert asked(lanes, bound(Limit(requests_per_s=1000))) is None


# -- calls in flight


TWO = bound(Limit(calls_in_flight=2))


def put(lanes: Lanes, **bounds: int) -> Call:
    made = call()
    assert lanes.refused(made, quota=TWO, **bounds) is None
    return made


def test_so_many_calls_are_open_until_they_are_answered_or_their_clients_go(lanes: Lanes) -> None:
    first = put(lanes)
    lanes.take(rows=1)
    waiting = put(lanes)
    assert waits_ms(asked(lanes, TWO), "calls_in_flight"), "one waits, one is in hand"
    lanes.answer(first.id)
    taken = put(lanes)
    assert waits_ms(asked(lanes, TWO))
    lanes.lanes.drop(waiting)
    put(lanes)
    lanes.take()
    assert waits_ms(asked(lanes, TWO))
    lanes.lanes.drop(taken)
    put(lanes)
    assert waits_ms(asked(lanes, TWO))


def test_a_call_that_would_come_too_late_is_open_no_longer(lanes: Lanes) -> None:
    put(lanes, timeout_ms=30_000)
    put(lanes, timeout_ms=30_000)
    assert lanes.take(needs_ms=40_000.0) == []
    put(lanes)


def test_a_call_is_open_until_its_second_death(lanes: Lanes) -> None:
    put(lanes)
    put(lanes)
    for lane in ("{}/64", LONE):
        assert len(lanes.take(lane=lane, worker="worker-2")) == 2
        assert waits_ms(asked(lanes, TWO))
        assert died(lanes) == 2
    put(lanes)


def test_a_call_that_everybody_forgot_is_open_until_its_deadline(lanes: Lanes) -> None:
    while not asked(lanes, TWO, timeout_ms=100):
        pass
    lanes.passed(lanes.look().now_ms + 110)
    put(lanes)


def test_requests_that_were_charged_before_keep_no_call_out(lanes: Lanes) -> None:
    limits = (Limit(requests_per_s=0.005, tokens_per_min=10),)
    assert asked(lanes, bound(*limits), size=9) is None  # as a charge does
    assert_waits(lanes, bound(*limits), 200_000)
    prepaid = quota_of("tenant", limits, MODEL, prepaid=True)
    assert asked(lanes, prepaid) is None
    no = asked(lanes, prepaid, size=10)
    assert 60_000 < waits_ms(no, "tokens_per_min") <= 200_000  # the next request needs one too


# -- tokens a minute


def generating(lanes: Lanes, quota: Quota, size: int, output_tokens: int) -> Call | Rejection:
    made = call(size)
    bounds = {"target_ms": 250, "timeout_ms": 60_000, "most": 100, "terms": Terms()}
    refused = lanes.lanes.put(made, **bounds, quota=quota, output_tokens=output_tokens)
    return refused or made


def generates(lanes: Lanes, quota: Quota, size: int, output_tokens: int) -> Call:
    made = generating(lanes, quota, size, output_tokens)
    assert isinstance(made, Call)
    return made


def assert_left(lanes: Lanes, quota: Quota, tokens: int, per_min: int = 600) -> None:
    """So many tokens may be used, and those of the time that has passed since the test began."""
    refused = generating(lanes, quota, 1, 10**9)  # is told what is left, asking for too many
    assert isinstance(refused, Rejection)
    assert refused.exceeded
    assert tokens <= refused.exceeded.left <= tokens + 1 + lanes.age_ms() * per_min / 60_000


PER_MIN = bound(Limit(tokens_per_min=600))


def test_a_minutes_tokens_may_be_used_at_once_input_and_output_together(lanes: Lanes) -> None:
    generates(lanes, PER_MIN, 100, 400)
    waits = waits_ms(generating(lanes, PER_MIN, 100, 400), "tokens_per_min")
    assert 40_000 - lanes.age_ms() <= waits <= 40_000
    assert_left(lanes, PER_MIN, 100)
    generates(lanes, PER_MIN, 20, 80)


@pytest.mark.parametrize(
    ("estimated", "used", "left"),
    [
        (400, TokenUsage(90, 50, 10), 500),  # what it did not generate is given back
        (100, TokenUsage(150, 0, 350), 100),  # what it generated above its estimate is charged
    ],
)
def test_a_call_is_charged_what_it_used(
    lanes: Lanes, estimated: int, used: TokenUsage, left: int
) -> None:
    made = generates(lanes, PER_MIN, 100, estimated)
    lanes.take()
    lanes.answer_as(made, tokens=used)
    assert_left(lanes, PER_MIN, left)


def test_a_call_is_settled_once_also_where_it_was_dropped(lanes: Lanes) -> None:
    made = generates(lanes, PER_MIN, 100, 400)
    lanes.take()
    lanes.lanes.drop(made)
    for _ in range(2):
        lanes.answer_as(made, tokens=TokenUsage(100, 0, 100), failed=True)
    assert_left(lanes, PER_MIN, 400)


def test_every_bound_of_tokens_a_minute_is_settled(lanes: Lanes) -> None:
    wide, narrow = Limit(tokens_per_min=6000), Limit(model=MODEL, tokens_per_min=600)
    made = generates(lanes, bound(wide, narrow), 100, 400)
    lanes.take()
    lanes.answer_as(made, tokens=TokenUsage(100, 0, 0))
    assert_left(lanes, bound(narrow), 500)
    assert_left(lanes, bound(wide), 5900, per_min=6000)


def test_a_call_that_generates_nothing_is_charged_by_its_size(lanes: Lanes) -> None:
    assert asked(lanes, PER_MIN, size=200) is None
    assert_left(lanes, PER_MIN, 400)
    generates(lanes, bound(Limit(tokens_per_s=10)), 9, 10**6)  # a bound of inputs alone


@pytest.mark.parametrize("end", ["dropped", "too late", "lost"])
def test_what_a_call_was_charged_that_never_ran_is_given_back(lanes: Lanes, end: str) -> None:
    taken = generates(lanes, PER_MIN, 20, 80)
    assert lanes.take_ids() == [taken.id]
    made = generates(lanes, PER_MIN, 100, 300)
    if end == "dropped":
        for _ in range(2):
            lanes.lanes.drop(made)
    elif end == "too late":
        assert lanes.take(needs_ms=1e9) == []
    else:
        for lane in ("{}/64", LONE):
            assert_left(lanes, PER_MIN, 100)
            assert len(lanes.take(lane=lane, worker="worker-2")) == 1
            assert died(lanes) == 1
    assert_left(lanes, PER_MIN, 500)
