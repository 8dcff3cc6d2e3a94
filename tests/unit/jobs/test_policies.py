"""Policies of rollouts and pools, from dictionaries and into them."""

from types import ModuleType

import pytest

from jobs.rollouts import policy as rollouts
from jobs.scaling import policy as pools

BOTH = pytest.mark.parametrize("policy", [rollouts, pools])


@BOTH
def test_a_policy_is_read_as_it_was_stored(policy: ModuleType) -> None:
    stored = policy.parse({"min_stay_s": 7})
    assert stored.min_stay_s == 7
    assert policy.read(policy.dump(stored)) == stored


@BOTH
def test_fields_of_a_later_release_are_left_out_of_what_is_stored(policy: ModuleType) -> None:
    stored = policy.dump(policy.Policy()) | {"of_a_later_release": 1}
    assert policy.read(stored) == policy.Policy()


@BOTH
def test_a_person_is_told_each_problem(policy: ModuleType) -> None:
    with pytest.raises(ValueError, match="unknown key 'unknown'"):
        policy.parse({"unknown": 1})
    with pytest.raises(ValueError, match="min_stay_s"):
        policy.parse({"min_stay_s": -1})
