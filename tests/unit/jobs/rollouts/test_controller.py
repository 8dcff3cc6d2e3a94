"""Decisions about a rollout, and their reasons."""

import random
from dataclasses import replace
from operator import itemgetter

import pytest

from jobs.rollouts.controller import RolloutState, decide, figures_of
from jobs.rollouts.guardrails import Observations
from jobs.rollouts.policy import Policy, parse
from jobs.rollouts.records import LaunchRecord
from tests.support.cases import each

POLICY = Policy(steps=(5, 50, 100), min_launches=100, min_stay_s=60, idle_s=600)
BEGAN = RolloutState("running", 0, 0.0)


def seen(count: int = 200, **canary: float) -> Observations:
    """Lanes that are alike but for these values of the canary."""
    observations, rng = Observations([0.0]), random.Random(4)
    for n in range(count):
        values = {name: rng.lognormvariate(0, 0.2) for name in ("latency_ms", "residual", "price")}
        for name, factor in canary.items():
            if name in values:
                values[name] *= factor
        failed = int(canary.get("failed", 0) * n) % 2 if "failed" in canary else 0
        observations.add(
            [
                LaunchRecord(n, "control", **{name: rng.lognormvariate(0, 0.2) for name in values}),  # type: ignore[arg-type]
                LaunchRecord(n, "canary", 1, failed, **values),  # type: ignore[arg-type]
            ]
        )
    return observations


def test_a_step_stays_for_its_shortest_stay_and_then_advances_unless_there_is_evidence() -> None:
    early = decide(BEGAN, seen(), POLICY, 30.0)
    assert (early.act, early.reason) == ("stay", "30 of 60 s at this step")
    few = decide(BEGAN, seen(99), POLICY, 100.0)
    assert (few.act, few.reason) == ("stay", "99 launches of 100 at this step")
    step = decide(BEGAN, seen(), POLICY, 300.0)
    assert step.act == "advance"
    assert "on to 50 %" in step.reason
    last = replace(BEGAN, step=2)
    assert decide(last, seen(), POLICY, 300.0).act == "promote"
    hasty = Policy(steps=(50, 100), min_launches=10, min_stay_s=0)
    suspicious = decide(BEGAN, seen(14, failed=1), hasty, 30.0)
    assert suspicious.act == "stay"
    assert suspicious.reason.startswith("evidence of ")
    assert decide(BEGAN, seen(14), hasty, 30.0).act == "advance"


def test_failures_roll_back_with_their_figures() -> None:
    failing = seen(failed=1)
    decision = decide(BEGAN, failing, POLICY, 30.0)
    assert decision.act == "roll_back"
    assert "launches with a failed call" in decision.reason
    figures = figures_of(failing, POLICY)
    assert figures["lanes"]["canary"]["failed"] == 100
    share, low, high = figures["lanes"]["canary"]["failed_share"]
    assert low < share == 0.5 < high
    assert figures["evidence"]["errors"] > figures["alarm_at"] > figures["evidence"]["output"]


def test_a_rollout_ends_or_waits_for_a_reason() -> None:
    held = replace(BEGAN, state="held", reason="by a person")
    failed = replace(BEGAN, load_error="no such file")
    unequal = seen()
    unequal.add([LaunchRecord(200.0, "control", calls=1000)])
    cases = [
        (BEGAN, seen(latency_ms=1.6), "roll_back", "p95 of the control is 1."),
        (held, seen(price=2.5), "roll_back", "beyond the limit of +50%"),
        (BEGAN, unequal, "hold", "differ more than equal shares do"),
        (failed, Observations(), "roll_back", "no worker could load the canary: no such file"),
    ]
    for (state, observations, act, reason), case in each(cases, name=itemgetter(3)):
        with case:
            decision = decide(state, observations, POLICY, 300.0)
            assert decision.act == act
            assert reason in decision.reason


def test_cost_holds_the_ramp_until_a_person_accepts_it() -> None:
    dearer = seen(residual=1.2)
    held = decide(BEGAN, dearer, POLICY, 300.0)
    assert held.act == "hold"
    assert held.reason.startswith("device time a call +")
    after = BEGAN.next(held.act, held.reason, 300.0)
    assert decide(after, dearer, POLICY, 3000.0).act == "stay"
    assert decide(BEGAN, dearer, replace(POLICY, accept_cost=True), 300.0).act == "advance"


def test_no_traffic_or_no_ready_worker_holds_until_there_is_some() -> None:
    observations = seen()
    silent = decide(BEGAN, observations, POLICY, 1000.0)
    assert silent.act == "hold"
    held = BEGAN.next(silent.act, silent.reason, 1000.0)
    assert held.state == "held"
    assert decide(held, observations, POLICY, 1100.0).act == "stay"
    observations.add([LaunchRecord(1100.0, "canary"), LaunchRecord(1100.0, "control")])
    assert decide(held, observations, POLICY, 1101.0).act == "resume"
    observations = seen()
    observations.add([LaunchRecord(200.0, "missed", 10)])
    assert decide(BEGAN, observations, POLICY, 300.0).act == "advance"
    observations.add([LaunchRecord(201.0, "missed", 10)])
    missed = decide(BEGAN, observations, POLICY, 300.0)
    assert (missed.act, missed.reason) == (
        "hold", "no ready worker: the stable version answered the canary's last 20 calls"
    )  # fmt: skip
    held = BEGAN.next(missed.act, missed.reason, 300.0)
    assert decide(held, observations, POLICY, 301.0).act == "stay"
    observations.add([LaunchRecord(302.0, "canary")])
    assert decide(held, observations, POLICY, 303.0).act == "resume"


def test_a_wrong_policy_says_what_is_wrong() -> None:
    cases = [
        ({"steps": [10, 5, 100]}, "must grow"),
        ({"steps": [5, 50]}, "end with 100"),
        ({"steps": [75, 100]}, "no control"),
        ({"steps": []}, "1 to 20 numbers"),
        ({"false_alarm": 0}, "probability"),
        ({"cost_hold": 0.6}, "up to cost_limit"),
        ({"min_stay": 5}, "unknown key 'min_stay'"),
    ]
    for (fields, problem), case in each(cases):
        with case, pytest.raises(ValueError, match=problem):
            parse(fields)
