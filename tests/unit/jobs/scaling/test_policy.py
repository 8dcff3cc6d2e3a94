"""Policies of pools and rollouts: declared rules and schedules, as people write them, the spot
part, and their way into a dictionary and back."""

from dataclasses import replace
from datetime import UTC, datetime
from types import ModuleType

import pytest

from jobs.rollouts import policy as rollout_policies
from jobs.scaling import policy as policies
from jobs.scaling import rules
from jobs.scaling.policy import Policy
from jobs.scaling.schedules import Schedule, parse
from jobs.scaling.signals import Signals
from jobs.scaling.spot import Split, split
from tests.support.cases import each


def test_a_rule_is_read_and_compares_with_the_signal() -> None:
    cases = [
        ("queue above 500 for 30 s: +3", "queue", 500, 30, 3),
        ("used above 85 % for 5 min: +1", "used", 0.85, 300, 1),
        ("used below 40% for 15min: −1", "used", 0.4, 900, -1),
        ("wait above 200 ms for 10 s: +2", "wait_s", 0.2, 10, 2),
        ("drain above 2 h for 1 min: +1", "drain_s", 7200, 60, 1),
        ("lag above 50 ms for 5 s: +2", "lag_s", 0.05, 5, 2),
        ("requests above 900 for 5 s: +1", "requests_s", 900, 5, 1),
    ]
    for (text, field, bound, for_s, add), case in each(cases):
        with case:
            rule = rules.parse(text)
            assert (rule.field, rule.bound, rule.for_s, rule.add) == (field, bound, for_s, add)
    rule = rules.parse("used above 85 % for 5 min: +1")
    assert rule.holds(Signals(0.0, ready=2, offered=1.71))
    assert not rule.holds(Signals(0.0, ready=2, offered=1.7))
    rule = rules.parse("requests below 5 for 5 min: -1")
    assert rule.holds(Signals(0.0, requests_s=4.0))
    assert not rule.holds(Signals(0.0))  # a pool of workers


def test_a_rule_that_is_wrong_says_how() -> None:
    cases = [
        ("queue over 500: +3", "write it as in"),
        ("load above 5 for 30 s: +3", "load is no signal"),
        ("queue above 5 % for 30 s: +3", "the bound of queue has no unit"),
        ("used above 5 for 30 s: +3", "the bound of used has %"),
        ("queue above 5 for 30 s: +0", "adds nothing"),
    ]
    for (text, wrong), case in each(cases):
        with case, pytest.raises(ValueError, match=wrong):
            rules.parse(text)


def test_a_schedule_is_due_and_a_wrong_one_says_so() -> None:
    cases = [
        (Schedule("0 9 * * 1-5", 3, 8), "2026-11-26T08:58", False),
        (Schedule("0 9 * * 1-5", 3, 8), "2026-11-26T08:59", True),  # a Thursday
        (Schedule("0 9 * * 1-5", 3, 8), "2026-11-26T16:59", True),
        (Schedule("0 9 * * 1-5", 3, 8), "2026-11-26T17:00", False),
        (Schedule("0 9 * * 1-5", 3, 8), "2026-11-28T10:00", False),
        (Schedule("0 9 * * 7", 3, 8), "2026-11-29T10:00", True),
        (Schedule("*/20 * * * *", 3, 0.1), "2026-11-28T10:45", True),
        (Schedule("*/20 * * * *", 3, 0.1), "2026-11-28T10:50", False),
        (Schedule("0 9 13 * 5", 3, 1), "2026-11-13T09:30", True),
        (Schedule("0 9 13 * 5", 3, 1), "2026-11-20T09:30", True),  # either day, as in cron
        (Schedule("0 9 * * *", 3, 1, "Europe/Berlin"), "2026-11-20T08:30", True),
    ]
    for (schedule, at, due), case in each(cases):
        with case:
            at_s = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
            assert schedule.is_due(at_s, 60.0) is due
    for cron, case in each(["* * * *", "60 * * * *", "a * * * *", "5-1 * * * *", "*/0 * * * *"]):
        with case, pytest.raises(ValueError, match=r"field|within|no number"):
            parse(cron)


MIXED = Policy(max_replicas=20, spot_pool="spot", spot_share=0.75, on_demand_floor=2)


def test_on_demand_replicas_stand_in_for_spot_ones_that_are_missing() -> None:
    cases = [
        (12, 10, 3, 10),  # a quarter stays, and one is spare
        (12, 4, 8, 10),  # five are missing, one of them the spare
        (12, 0, 12, 10),
        (12, 50, 3, 10),
        (4, 3, 2, 3),  # the floor
        (2, 5, 2, 0),
        (1, 0, 1, 0),
        (0, 0, 0, 0),
    ]
    for (desired, coming, on_demand, spot), case in each(cases):
        with case:
            assert split(desired, coming, MIXED) == Split(on_demand, spot)
    assert split(7, 0, Policy(max_replicas=9)) == Split(7, 0)
    assert split(5, 6, replace(MIXED, spot_share=1.0, on_demand_floor=0)) == Split(0, 6)


def test_policies_that_make_no_sense_are_refused() -> None:
    some = {"spot_share": 0.5, "spot_pool": "x"}
    cases = [
        ({"spot_share": 0.5}, "spot_share, spot_pool: both or none"),
        ({"spot_pool": "x"}, "spot_share, spot_pool: both or none"),
        ({"spot_share": 1.5, "spot_pool": "x"}, "spot_share: 0 up to 1"),
        ({"on_demand_floor": 9}, "on_demand_floor: 0 up to max_replicas"),
        (some | {"actuator": "local"}, "spot_pool: not with the actuator local"),
        ({"requests_s": 0.0}, "requests_s: above 0"),
        ({"lag_ms": 0.5}, "lag_ms: 1 up to 60,000"),
    ]
    for (fields, problem), case in each(cases):
        with case, pytest.raises(ValueError, match=problem):
            policies.parse({"max_replicas": 8, **fields})


def test_the_load_of_both_parts_counts_calls_of_shared_models_once() -> None:
    stays = Signals(1.0, 2, 1, 1.5, 10.0, queue=4, items=100, wait_s=0.2, refused=0.01)
    spot = Signals(1.0, 5, 0, 3.0, 20.0, queue=4, items=200, slack_s=0.3, missing=("it",))
    both = stays.with_spot(spot)
    assert (both.ready, both.booting, both.offered, both.backlog_s) == (7, 1, 4.5, 30.0)
    assert (both.queue, both.items, both.wait_s, both.refused) == (4, 300, 0.2, 0.01)
    assert (both.slack_s, both.missing) == (0.3, ("it",))


@pytest.mark.parametrize("policy", [rollout_policies, policies])
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
