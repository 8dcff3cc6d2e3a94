"""Failures of a device in a row, as the supervisor of its worker counts them."""

from math import inf

import pytest

from ops.supervisor.device_failures import DeviceFailures
from workers.device.monitoring.watchdog import (
    DEVICE_CRASH_EXIT_CODE,
    FIRST_LAUNCH_EXIT_CODE,
    SICK_EXIT_CODE,
)

SICK, FIRST, CRASH = SICK_EXIT_CODE, FIRST_LAUNCH_EXIT_CODE, DEVICE_CRASH_EXIT_CODE
ONE_OF_1000 = 15  # deaths that one item of a slice of 1,000 causes until it stands alone


def pauses(codes: list[int], lived_s: float = 5.0) -> list[float]:
    """Returns the pause after each of these ends."""
    device, found = DeviceFailures(), list[float]()
    for code in codes:
        device.count(code, lived_s)
        found.append(device.pause_s())
    return found


def test_a_device_on_which_nothing_works_is_quarantined_at_the_third_failure() -> None:
    assert pauses([SICK, SICK, SICK]) == [1.0, 4.0, inf]


@pytest.mark.parametrize("codes", [[SICK, FIRST, FIRST, FIRST], [CRASH] * ONE_OF_1000])
def test_one_item_that_makes_launches_fail_quarantines_no_worker(codes: list[int]) -> None:
    assert inf not in pauses(codes)


@pytest.mark.parametrize("code", [FIRST, CRASH])
def test_launches_that_fail_for_ever_quarantine_the_worker(code: int) -> None:
    assert set(pauses([code] * 2 * ONE_OF_1000)) == {1.0, 4.0, inf}


def test_a_device_that_worked_for_long_between_its_failures_goes_on() -> None:
    assert set(pauses([CRASH] * 50, lived_s=400.0)) == {1.0}


def test_a_worker_that_lived_long_and_ended_otherwise_has_a_healthy_device() -> None:
    device = DeviceFailures()
    for code, lived_s in ((SICK, 1.0), (SICK, 1.0), (1, 60.0), (SICK, 1.0)):
        device.count(code, lived_s)
    assert device.pause_s() == 1.0
