"""Rollouts of versions that differ in a known way, played into a trace."""

import json
from pathlib import Path

import pytest

from jobs.rollouts.policy import parse
from ops.simulation.rollout import Played, Regression, play
from tests.support.command_line import json_of, run_millrace
from tests.unit.workers.simulation.made import BATCHSTRING, poisson
from workers.simulation.costs import LaunchTimes

pytestmark = pytest.mark.heavy

TIMES = LaunchTimes(0.01, ratios=tuple(0.8 + n / 250 for n in range(101)))
ARRIVALS = poisson(40, 60)
POLICY = {"steps": [40, 100], "min_launches": 100, "min_stay_s": 10}


def played(regression: str, **policy: object) -> Played:
    terms = parse({**POLICY, **policy})
    return play(BATCHSTRING, 2, ARRIVALS, TIMES, Regression.parse(regression), terms)


def acts(rollout: Played) -> list[str]:
    return [event.act for event in rollout.events]


def test_a_version_like_the_one_before_is_promoted() -> None:
    rollout = played("none")
    assert acts(rollout) == ["start", "advance", "promote"]
    assert rollout.state == "promoted"
    assert [event.percent for event in rollout.events] == [40, 100, 100]
    assert all(event.at_s >= 10 * n for n, event in enumerate(rollout.events))
    assert sum(rollout.calls.values()) == len(ARRIVALS)
    assert rollout.failed == 0


def test_a_version_that_fails_is_rolled_back_if_the_trace_lasts() -> None:
    rollout = played("errors=0.3", min_stay_s=30)
    assert acts(rollout) == ["start", "roll_back"]
    assert rollout.reason.startswith("launches with a failed call")
    assert rollout.events[-1].percent == 0
    assert rollout.failed == rollout.events[-1].figures["lanes"]["canary"]["failed"]
    assert rollout.calls["stable"] > rollout.calls["canary"]
    rollout = played("none", min_stay_s=3600)
    assert rollout.state == "running"
    assert rollout.reason.endswith("of 3600 s at this step")


def test_a_dearer_version_is_held_and_a_slower_one_rolled_back() -> None:
    for regression, act, reason in (
        ("cost=1.1", "hold", "price a call +10.0%"),
        ("latency=1.3", "roll_back", "launches slower than the control's"),
    ):
        rollout = played(regression, min_stay_s=60)
        assert acts(rollout) == ["start", act]
        assert rollout.reason.startswith(reason)


def test_a_faulty_regression_is_refused() -> None:
    for text, problem in (
        ("errors", "'errors' must be NAME=NUMBER"),
        ("speed=2", "speed: it takes errors, latency and cost"),
        ("errors=2", "errors is a share from 0 to 1"),
        ("latency=0", "factors above 0"),
    ):
        with pytest.raises(ValueError, match=problem):
            Regression.parse(text)


def test_the_command_tells_each_act_and_why(tmp_path: Path) -> None:
    (tmp_path / "calls.csv").write_text("\n".join(f"{at_s:.6f}" for at_s, _ in ARRIVALS))
    words = [
        *("simulate", "--trace", str(tmp_path / "calls.csv"), "--model", "batchstring"),
        *("--replicas", "2", "--launch-ms", "10", "--rollout", "errors=0.3"),
        *("--policy", json.dumps(POLICY)),
    ]
    shown = run_millrace(*words).output
    assert "roll_back" in shown
    assert "launches with a failed call" in shown
    found = json_of(*words)
    assert found["state"] == "rolled_back"
    assert found["events"][-1]["act"] == "roll_back"
    refused = run_millrace(*words, "--policy", '{"steps": [60, 100]}', status=2)
    assert "none between 50 and 100" in refused.output
