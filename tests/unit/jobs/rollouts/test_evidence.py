"""Betting e-process: fair while versions are alike, and fast where one is worse."""

import random
from statistics import mean

import pytest

from jobs.rollouts.evidence import STAKES, Evidence, LaunchShare


def test_an_event_pays_fair_odds() -> None:
    for share in (0.05, 0.5):
        won, lost = Evidence(), Evidence()
        won.add(True, share)
        lost.add(False, share)
        assert won.value == pytest.approx(1 + mean(STAKES) * (1 - share) / share)
        assert share * won.value + (1 - share) * lost.value == pytest.approx(1)


def test_many_events_at_once_are_as_many_single_ones() -> None:
    once, often = Evidence(), Evidence()
    once.add(False, 0.2, 7)
    for _ in range(7):
        often.add(False, 0.2)
    assert once.value == pytest.approx(often.value)
    assert once.events == often.events == 7


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_alike_versions_alarm_as_rarely_as_promised_at_any_look(share: float) -> None:
    rng, alarms, runs = random.Random(3), 0, 300
    for _ in range(runs):
        evidence = Evidence()
        for _ in range(300):
            evidence.add(rng.random() < share, share)
            if evidence.value >= 20:  # at most one in twenty
                alarms += 1
                break
    assert alarms <= 0.05 * runs


def test_a_worse_version_is_found() -> None:
    evidence = Evidence()
    for _ in range(12):
        evidence.add(True, 0.5)
    assert evidence.value > 200


def test_the_share_of_launches_errs_to_the_safe_side() -> None:
    share = LaunchShare()
    assert share.value is None
    share.add(canary=100, stable=1900)
    assert share.value is not None
    assert 0.05 < share.value < 0.06
