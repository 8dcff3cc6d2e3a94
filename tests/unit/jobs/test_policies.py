"""Policies of rollouts and pools, from dictionaries and into them."""

from types import ModuleType

import pytest

from jobs.rollouts import policy as rollouts
from jobs.scaling import policy as pools


@pytest.mark.parametrize("policy", [rollouts, pools])
def test_a_policy_is_read_as_it_was_stored_and_each_problem_is_told(policy: ModuleType) -> None:
    stored = policy.parse({"min_stay_s": 7})
    assert stored.min_stay_s == 7
    assert policy.parse(policy.dump(stored)) == policy.read(policy.dump(stored)) == stored
    later = policy.dump(policy.Policy()) | {"of_a_later_release": 1}
    assert policy.read(later) == policy.parse({}) == policy.Policy()
    with pytest.raises(ValueError, match="unknown key 'unknown'"):
        policy.parse({"unknown": 1})
    with pytest.raises(ValueError, match="min_stay_s"):
        policy.parse({"min_stay_s": -1})
