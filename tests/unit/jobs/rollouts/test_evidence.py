"""Evidence of a rollout: the e-process, the ratio of costs, figures of one lane, guardrails."""

import random
from collections.abc import Iterable
from dataclasses import replace
from statistics import mean

import pytest

from jobs.rollouts import share
from jobs.rollouts.cost import LEAST, CostRatio, Interval
from jobs.rollouts.evidence import STAKES, Evidence, LaunchShare
from jobs.rollouts.guardrails import Observations
from jobs.rollouts.independence import MOST_CALLERS
from jobs.rollouts.lane_figures import LaneFigures
from jobs.rollouts.records import Lane, LaunchRecord, pack, unpack


def test_an_event_pays_fair_odds_alone_or_among_many() -> None:
    for chance in (0.05, 0.5):
        won, lost = Evidence(), Evidence()
        won.add(True, chance)
        lost.add(False, chance)
        assert won.value == pytest.approx(1 + mean(STAKES) * (1 - chance) / chance)
        assert chance * won.value + (1 - chance) * lost.value == pytest.approx(1)
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


def test_a_worse_version_is_found_and_the_share_of_launches_errs_to_the_safe_side() -> None:
    evidence = Evidence()
    for _ in range(12):
        evidence.add(True, 0.5)
    assert evidence.value > 200
    share = LaunchShare()
    assert share.value is None
    share.add(canary=100, stable=1900)
    assert share.value is not None
    assert 0.05 < share.value < 0.06


def fill(ratio: CostRatio, rng: random.Random, count: int, factor: float) -> None:
    for _ in range(count):
        ratio.add(rng.lognormvariate(0, 0.5) * factor, canary=True)
        ratio.add(rng.lognormvariate(0, 0.5), canary=False)


def known_interval(ratio: CostRatio) -> Interval:
    found = ratio.interval(0.01)
    assert found
    return found


def test_there_is_no_interval_before_a_hundred_observations_of_a_caller_each() -> None:
    ratio = CostRatio()
    fill(ratio, random.Random(1), LEAST - 1, 1.0)
    assert ratio.interval(0.01) is None
    fill(ratio, random.Random(2), 1, 1.0)
    assert ratio.interval(0.01) is not None
    ratio = CostRatio()
    for n in range(1000):
        for canary in (True, False):
            ratio.add(1.0 + n % 7, canary=canary, unit=str(n % (LEAST - 1)))
    assert ratio.interval(0.01) is None


def test_the_interval_holds_at_every_look() -> None:
    runs, missed = 100, 0
    for seed in range(runs):
        ratio, rng = CostRatio(), random.Random(seed)
        for _ in range(60):
            fill(ratio, rng, 20, 1.2)
            found = ratio.interval(0.05)
            if found and not found.low < 1.2 < found.high:
                missed += 1
                break
    assert missed <= 0.1 * runs  # both bounds


def test_a_dearer_version_is_found_one_outlier_is_not_one_and_equal_costs_differ_by_nothing() -> (
    None
):
    ratio, rng = CostRatio(), random.Random(5)
    fill(ratio, rng, 1000, 1.2)
    assert known_interval(ratio).low > 1
    alike = CostRatio()
    fill(alike, rng, 1000, 1.0)
    alike.add(1e6, canary=True)
    assert known_interval(alike).ratio == pytest.approx(1, abs=0.1)
    ratio = CostRatio()
    for n in range(10 * LEAST):
        ratio.add(1.0 + n % 2 / 100, canary=False)
        if n >= LEAST:  # the control's quantile is known from then on
            ratio.add(1.2 + n % 2 / 100, canary=True)
    assert known_interval(ratio).ratio == pytest.approx(1.2, abs=0.01)
    ratio = CostRatio()
    for _ in range(LEAST):
        ratio.add(1.1, canary=True)
        ratio.add(1.0, canary=False)
    assert str(known_interval(ratio)) == "+10.0% (+10.0% to +10.0%)"


def test_shares_are_of_launches_or_of_sticky_callers_and_costs_of_calls() -> None:
    assert LaneFigures().as_json(0.01) == {}
    lane = LaneFigures()
    for n in range(40):
        failed = 2 if n < 4 else 0  # all calls of these launches: they cost nothing that counts
        lane.add(LaunchRecord(n, "canary", 2, failed, latency_ms=n + 1, device_ms=8, price=3))
    found = lane.as_json(0.01)
    low, high = share.interval(4, 40, 0.01)
    assert found["failed_share"] == [0.1, round(low, 6), round(high, 6)]
    assert found["latency_ms"] == [22, 38]  # of 5 to 40
    assert (found["device_ms"], found["price"]) == (4, 1.5)
    assert "ttft_ms" not in found
    lane = LaneFigures()
    for n in range(40):
        lane.add(LaunchRecord(n, "canary", 1, int(n % 4 == 0), unit=f"u{n % 4}"))
    assert lane.as_json(0.01)["failed_share"][0] == 0.25


def test_an_interval_holds_the_share_and_misses_it_seldom_however_often_one_looks() -> None:
    for events, count in ((0, 0), (0, 300), (1, 1), (300, 300), (7, 300)):
        low, high = share.interval(events, count, 0.01)
        assert 0 <= low <= (events / count if count else 0.5) <= high <= 1
        assert (low > 0, high < 1) == (events > 0, events < count)
    rng, missed = random.Random(5), 0
    for _ in range(300):
        events = 0
        for n in range(1, 400):
            events += rng.random() < 0.1
            low, high = share.interval(events, n, 0.1) if n % 20 == 0 else (0.0, 1.0)
            if not low <= 0.1 <= high:
                missed += 1
                break
    assert missed <= 30


def launch(
    lane: Lane, failed: int = 0, calls: int = 8, unit: str = "", **values: float
) -> LaunchRecord:
    return LaunchRecord(0.0, lane, calls, failed, unit, **values)  # type: ignore[arg-type]


def observed(records: Iterable[LaunchRecord]) -> Observations:
    seen = Observations()
    seen.add(records)
    return seen


def test_a_launch_that_fails_as_a_whole_and_a_sticky_caller_are_one_event_each() -> None:
    seen = observed([launch("canary", failed=8), launch("canary", failed=1)])
    assert seen.errors_beside_control.events == 2
    assert seen.canary.failed == 9
    seen = observed([launch("canary", failed=1, unit="17") for _ in range(50)])
    seen.add([launch("canary", failed=1, unit="18")])
    assert seen.errors_beside_control.events == 2
    assert seen.at_step == 2


def test_callers_of_one_launch_and_calls_that_generate_at_one_time_are_one_event() -> None:
    seen = Observations()
    parts = [launch("canary", failed=1, calls=1, unit=f"{n}") for n in range(8)]
    seen.add([parts[0], *(replace(one, launches=0) for one in parts[1:])])
    assert seen.errors_beside_control.events == 1
    assert (seen.canary.launches, seen.at_step) == (1, 8)
    stranger = launch("canary", failed=1, calls=1, unit="new")
    seen.add([parts[5], replace(stranger, launches=0)])  # one of them may be why
    assert seen.errors_beside_control.events == 1
    seen.add([stranger])
    assert seen.errors_beside_control.events == 2
    seen = Observations()
    ends_s = [100.0, 100.0, 101.0, 103.0, 104.5]  # of calls of two seconds
    lanes: list[Lane] = ["canary", "control"]
    for n, end_s in enumerate(ends_s):
        record = launch(lanes[n % 2], failed=1, calls=1, lasted_ms=2000.0)
        seen.add([replace(record, at_s=end_s)])
    assert seen.errors_beside_control.events == 2  # at 100 and at 103


def test_ten_lost_launches_in_a_row_count_if_of_several_callers_while_the_control_works() -> None:
    seen = observed([launch("canary", failed=1, calls=1, unit="17") for _ in range(50)])
    assert seen.lost_in_a_row == 0
    seen.add([launch("canary", failed=1, calls=1, unit=f"{n}") for n in range(9)])
    assert seen.lost_in_a_row == 10
    seen = observed([launch("canary", failed=8) for _ in range(9)])
    assert seen.lost_in_a_row == 0
    seen.add([launch("canary", failed=8)])
    assert seen.lost_in_a_row == 10
    seen.add([launch("control", failed=8)])
    assert seen.lost_in_a_row == 0


def test_of_very_many_callers_some_are_followed() -> None:
    seen, count = Observations(), 3 * MOST_CALLERS
    seen.add(
        launch("canary" if n % 2 else "control", int(n % 50 == 0), 1, f"{n:x}", latency_ms=5.0)
        for n in range(count)
    )
    assert len(seen.canary.units | seen.control.units) <= MOST_CALLERS
    assert abs(seen.at_step - count / 2) < 0.05 * count
    assert seen.mismatch == 1
    before = seen.errors_beside_control.events
    seen.add(launch("canary", 1, 1, f"new {n}") for n in range(1000))
    assert 150 < seen.errors_beside_control.events - before < 350


def test_unequal_lanes_are_a_mismatch_but_for_what_the_stable_version_answered() -> None:
    seen = observed([launch("canary"), launch("missed", calls=900), launch("control", calls=900)])
    assert seen.mismatch == 1
    assert seen.missed_in_a_row == 900
    seen.add([launch("canary")])
    assert seen.missed_in_a_row == 0
    seen = observed([launch("canary", calls=520), launch("control", calls=480)])
    assert seen.mismatch == 1
    seen.add([launch("canary", calls=5200), launch("control", calls=4000)])
    assert seen.mismatch < 0.001


def test_slowness_and_errors_are_evidence_beside_what_the_other_versions_do() -> None:
    seen = observed([launch("canary", latency_ms=1e6)])
    assert seen.slow["latency"].value == 1
    seen.add([launch("control", latency_ms=10.0 + n % 10) for n in range(100)])
    seen.add([launch("canary", latency_ms=100.0) for _ in range(40)])
    assert seen.slow["latency"].value > 500
    seen = observed([launch("stable", failed=1, calls=0) for _ in range(20)])
    seen.add([LaunchRecord(0.0, "stable", launches=950)])
    seen.add([launch("canary") for _ in range(50)])
    before = seen.errors_beside_all.value
    seen.add([launch("canary", failed=1)])
    assert seen.errors_beside_all.value > 5 * before


def test_records_are_read_as_they_were_written_and_fold_in_pieces_as_the_whole() -> None:
    seen = Observations([100.0])
    seen.add([LaunchRecord(99.0, "canary"), LaunchRecord(101.0, "canary")])
    assert (seen.canary.launches, seen.step_canary.launches) == (2, 1)
    seen.begin_step(200.0)
    seen.add([LaunchRecord(201.0, "canary")])
    assert seen.step_canary.launches == 1
    records = [
        LaunchRecord(n, "canary" if n % 2 else "control", 4, int(n % 9 == 0), latency_ms=n % 13)
        for n in range(1000)
    ]
    whole, pieces = Observations([500.0]), Observations([500.0])
    whole.add(records)
    for n in range(0, 1000, 37):
        pieces.add(records[n : n + 37])
    assert whole.evidence == pieces.evidence
    assert whole.step_canary == pieces.step_canary
    record = LaunchRecord(
        7.0, "control", 3, 1, "12", 4.5, device_ms=2.0, price=0.5, empty=1, size=(3.0, 9.0, 27.0, 0)
    )
    assert unpack(pack([record]), 7.0) == [record]
    both = [record, replace(record, unit="13", launches=0)]
    assert unpack(pack(both), 7.0) == both
    assert unpack(b'{"lane":"canary","new":1}', 1.0) == [LaunchRecord(1.0, "canary")]


def test_a_canary_that_gets_all_calls_is_compared_with_nothing() -> None:
    seen = Observations([0.0, 100.0], alone_from_s=100.0)
    both = [replace(launch(lane, latency_ms=5.0), at_s=1.0) for lane in ("canary", "control")]
    seen.add(both * 60)
    before = seen.evidence, seen.mismatch
    worse = replace(launch("canary", failed=1, latency_ms=50.0, empty=1), at_s=101.0)
    seen.add([worse] * 500)
    assert (seen.evidence, seen.mismatch) == before
    assert seen.at_step == 500
    seen.add([replace(worse, failed=8)] * 10)
    assert seen.lost_in_a_row == 10
