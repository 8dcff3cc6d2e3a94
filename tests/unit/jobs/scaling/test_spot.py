"""Spot part of a pool: how replicas are split, and the load of both parts together."""

from dataclasses import replace

import pytest

from jobs.scaling.policy import Policy, parse
from jobs.scaling.signals import Signals
from jobs.scaling.spot import Split, split
from tests.support.cases import each

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


def test_without_a_share_nothing_is_spot_and_all_may_be() -> None:
    assert split(7, 0, Policy(max_replicas=9)) == Split(7, 0)
    assert split(5, 6, replace(MIXED, spot_share=1.0, on_demand_floor=0)) == Split(0, 6)


def test_policies_that_make_no_sense_are_refused() -> None:
    cases = [
        ({"spot_share": 0.5}, "spot_share, spot_pool: both or none"),
        ({"spot_pool": "x"}, "spot_share, spot_pool: both or none"),
        ({"spot_share": 1.5, "spot_pool": "x"}, "spot_share: 0 up to 1"),
        ({"on_demand_floor": 9}, "on_demand_floor: 0 up to max_replicas"),
        (
            {"spot_share": 0.5, "spot_pool": "x", "actuator": "local"},
            "spot_pool: not with the actuator local",
        ),
    ]
    for (fields, problem), case in each(cases):
        with case, pytest.raises(ValueError, match=problem):
            parse({"max_replicas": 8, **fields})


def test_the_load_of_both_parts_counts_calls_of_shared_models_once() -> None:
    stays = Signals(1.0, 2, 1, 1.5, 10.0, queue=4, items=100, wait_s=0.2, refused=0.01)
    spot = Signals(1.0, 5, 0, 3.0, 20.0, queue=4, items=200, slack_s=0.3, missing=("it",))
    both = stays.with_spot(spot)
    assert (both.ready, both.booting, both.offered, both.backlog_s) == (7, 1, 4.5, 30.0)
    assert (both.queue, both.items, both.wait_s, both.refused) == (4, 300, 0.2, 0.01)
    assert (both.slack_s, both.missing) == (0.3, ("it",))
