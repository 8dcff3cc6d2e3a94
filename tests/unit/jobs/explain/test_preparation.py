"""Which of two tiers keeps the other waiting: devices, or the workers that prepare for them."""

import pytest

from jobs.explain import Diagnosis
from jobs.store.monitoring.observations import ModelObservation, Observations
from tests.unit.jobs.explain.made import Process, found, keeper, launched, worker

STAGE = {"model": "m@1~prepare"}


def said(devices: float, preparation: float | None, waiting: float = 500.0) -> dict[str, Diagnosis]:
    """Findings where devices and workers that prepare are so busy; None: there are none."""
    told = keeper().gauge("queue_items", waiting, **STAGE)
    told.gauge("predicted_drain_seconds", 90.0, pool="prepare", **STAGE)
    processes = [launched(worker(devices)), told]
    if preparation is not None:
        prepares = Process("worker", "2").gauge("model_slots", 1.0, **STAGE)
        prepares.count("device_busy_seconds_total", preparation * 60.0, device="cpu")
        processes.append(prepares.count("launches_total", 100, reason="full", **STAGE))
    states = {"m@1": ModelObservation({"ready": 1})}
    if preparation is not None:
        states["m@1~prepare"] = ModelObservation({"ready": 1})
    return found(*processes, seen=Observations(models=states))


def test_idle_devices_that_wait_for_preparation_need_more_of_it() -> None:
    one = said(devices=0.2, preparation=0.97)
    assert one.keys() == {"preparation_saturated"}
    assert one["preparation_saturated"].about == "model:m@1"
    assert "pool prepare" in one["preparation_saturated"].advice


def test_idle_preparation_that_waits_for_devices_needs_more_devices() -> None:
    one = said(devices=0.97, preparation=0.2)
    assert one.keys() == {"preparation_ahead"}
    assert "more workers in its pool" in one["preparation_ahead"].advice


@pytest.mark.parametrize(("devices", "preparation"), [(0.95, 0.95), (0.3, 0.3), (0.7, 0.7)])
def test_tiers_that_are_alike_have_nothing_to_say(devices: float, preparation: float) -> None:
    assert not said(devices, preparation)


def test_without_waiting_items_nobody_waits() -> None:
    assert not said(devices=0.2, preparation=0.97, waiting=0)


def test_items_that_nobody_prepares_are_told() -> None:
    one = said(devices=0.0, preparation=None)
    assert one.keys() == {"no_prepare_worker"}
    assert "`millrace prepare`" in one["no_prepare_worker"].advice
