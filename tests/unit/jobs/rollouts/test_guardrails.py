"""Guardrails: their unit is a launch, or a caller."""

from collections.abc import Iterable
from dataclasses import replace

from jobs.rollouts.guardrails import Observations
from jobs.rollouts.independence import MOST_CALLERS
from jobs.rollouts.records import Lane, LaunchRecord, pack, unpack


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


def test_a_fold_in_pieces_from_the_time_of_a_step_is_the_fold_of_the_whole() -> None:
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


def test_a_record_is_read_as_it_was_written() -> None:
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
