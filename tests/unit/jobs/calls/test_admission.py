"""On which terms calls are let in, from what workers told."""

import random
from dataclasses import replace

import pytest

from jobs.calls.admission import Margin, due_ms, mixed_terms, terms
from jobs.calls.profile import Profile, Times
from jobs.models.model import Degrade, Model
from tests.support.cases import each

PROFILE = Profile(buckets={0: Times(full_rows=100, full_ms=110, one_ms=100)})
MODEL = Model("m", "1", "echo", target_ms=200)  # a margin of 5 ms
SHEDDING = replace(MODEL, degrade=Degrade(shed=True))


def allowed_ms(model: Model = MODEL, timeout_ms: int = 10_000, share: float = 1.0) -> float:
    return terms(PROFILE, model, 0, timeout_ms, share).allowed_ms


def test_an_answer_is_due_within_target_and_timeout_whatever_others_take() -> None:
    cases = [(10_000, 195), (200, 195), (180, 175), (20, 15), (4, 3)]
    for (timeout_ms, allowed), case in each(cases):
        with case:
            assert allowed_ms(timeout_ms=timeout_ms) == pytest.approx(allowed)
    hopeless = replace(MODEL, target_ms=80)
    assert allowed_ms(hopeless, timeout_ms=10_000) == pytest.approx(10_000 - 5)
    # A busy host announces late first tokens: calls are refused, not let in until they time out.
    busy = Times(full_rows=16, full_ms=5000, one_ms=900, step_ms=5, alone_ms=20)
    assert due_ms(Profile(buckets={0: busy}), MODEL, 0, 60_000) == MODEL.target_ms
    slow = Times(full_rows=16, full_ms=5000, one_ms=900, step_ms=5, alone_ms=900)
    assert due_ms(Profile(buckets={0: slow}), MODEL, 0, 60_000) == 60_000


def test_a_lower_class_may_wait_for_less_and_nothing_is_refused_while_no_time_is_known() -> None:
    assert allowed_ms(SHEDDING, share=1.0) == pytest.approx(195)
    assert allowed_ms(SHEDDING, share=0.75) == pytest.approx(100 + 0.75 * 95)
    assert allowed_ms(SHEDDING, share=0.5) == pytest.approx(100 + 0.5 * 95)
    assert allowed_ms(MODEL, share=0.5) == allowed_ms(MODEL, share=1.0)
    assert terms(Profile(), MODEL, 0, 1, 1.0).allowed_ms == float("inf")
    assert terms(PROFILE, MODEL, 64, 1, 1.0).allowed_ms == float("inf")


def test_a_profile_tells_of_slots_and_a_further_row_and_is_read_by_the_release_before() -> None:
    assert terms(PROFILE, MODEL, 0, 1000).slots == MODEL.limits.in_flight
    assert terms(replace(PROFILE, slots=7), MODEL, 0, 1000).slots == 7
    assert terms(Profile(slots=7), MODEL, 0, 1000).slots == 7
    assert Profile.unpack(replace(PROFILE, slots=7).pack()).slots == 7
    times = Times(full_rows=16, full_ms=1300, one_ms=20, step_ms=5)
    profile = Profile.unpack(Profile(buckets={0: times}).pack())
    assert (profile.terms(0, 1, 1000).step_ms, profile.terms(0, 1, 1000).full_ms) == (5, 1300)
    assert not {b"step_ms", b"alone_ms"} & set(PROFILE.pack().split(b'"'))


def test_a_tenant_whose_prompts_are_computed_is_behind_them_and_others_are_not() -> None:
    profile = Profile.unpack(replace(PROFILE, behind_ms={"flood": 90.0}).pack())
    assert terms(profile, MODEL, 0, 1000, tenant="flood").one_ms == 190
    assert terms(profile, MODEL, 0, 1000, tenant="light") == terms(PROFILE, MODEL, 0, 1000)
    others = mixed_terms([PROFILE, profile], MODEL, 0, 1000, tenant="flood").others
    assert [one.one_ms for one in others] == [190]


def test_late_answers_widen_the_margin_up_to_a_quarter_of_the_target() -> None:
    """Those that wait as long as they may take up to 30 ms more than predicted."""
    margin, draw = Margin(MODEL), random.Random(1)
    late = []
    for _ in range(5000):
        late.append(draw.uniform(0, 30) > margin.ms)
        margin.record(late=late[-1])
    assert sum(late[1000:]) / 4000 == pytest.approx(0.03, abs=0.01)
    for _ in range(1000):
        margin.record(late=False)
    assert margin.ms == MODEL.margin_ms
    margin = Margin(MODEL)
    for _ in range(1000):
        margin.record(late=True)
    assert margin.ms == 50
