"""Which of two tiers keeps the other waiting: devices, or the workers that prepare for them."""

from jobs.explain import Diagnosis
from jobs.store.monitoring.observations import ModelObservation, Observations
from tests.support.cases import each
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


def test_the_tier_that_keeps_the_other_waiting_is_told() -> None:
    cases = [
        (0.2, 0.97, "preparation_saturated", "pool prepare"),
        (0.97, 0.2, "preparation_ahead", "more workers in its pool"),
        (0.0, None, "no_prepare_worker", "`millrace prepare`"),
    ]
    for (devices, preparation, code, advice), case in each(cases):
        with case:
            one = said(devices, preparation)
            assert one.keys() == {code}
            assert one[code].about == "model:m@1"
            assert advice in one[code].advice


def test_tiers_that_are_alike_or_without_waiting_items_have_nothing_to_say() -> None:
    for busy in (0.95, 0.3, 0.7):
        assert not said(busy, busy)
    assert not said(devices=0.2, preparation=0.97, waiting=0)
