"""Rules on GPUs: each speaks just beyond its thresholds, and is silent just below them."""

from dataclasses import replace
from typing import Any

import pytest

from jobs.explain import Diagnosis, Facts, diagnose
from jobs.explain.cheaper import Cheaper
from jobs.explain.diagnosis import visible_to_tenants
from jobs.explain.rules.gpus import gpu_idles_between_launches
from jobs.models.model import Limits
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import Recent
from tests.support.cases import each
from tests.unit.jobs.explain.made import (
    MODEL,
    M,
    Process,
    calls,
    facts,
    found,
    keeper,
    launched,
    with_gpu,
    worker,
)


def waiting(seconds: float = 31.0) -> Process:
    """Items, of which a slice has been claimable for so long."""
    told = keeper().gauge("queue_items", 4000, **M)
    return told.gauge("queue_oldest_seconds", seconds, **M)


def gpu(busy: float, activity: float | None, launches: float = 100, **more: Any) -> Process:
    """A worker with a GPU, and launches of the model on it."""
    return with_gpu(launched(worker(busy), launches), activity, **more)


# -- host-bound


def test_a_gpu_that_idles_between_launches_while_items_wait_is_host_bound() -> None:
    said = found(gpu(0.79, 0.6), waiting())["gpu_idles_between_launches"]
    assert said.words == (
        "host-bound: the GPU of m@1 (H100) has a launch 79 % of the time though items wait, the "
        "oldest slice for 31 s; between launches of 100 ms the GPU idles"
    )
    assert (said.severity, said.about) == ("info", "model:m@1")
    assert visible_to_tenants([said])[0].words == said.words
    worse = found(gpu(0.49, 0.4), waiting())["gpu_idles_between_launches"]
    assert worse.severity == "warning"
    cases = {
        "busy enough": (gpu(0.81, 0.6), waiting()),
        "nothing has waited for long": (gpu(0.5, 0.4), waiting(29)),
        "few launches": (gpu(0.5, 0.4, launches=9), waiting()),
        "a CPU": (launched(worker(0.5)), waiting()),
        "launches on the CPU of a GPU's worker": (gpu(0.5, 0.01), waiting()),
        "a GPU that tells no activity": (gpu(0.5, None), waiting()),
    }
    for (_, processes), case in each(cases.items(), name=lambda one: one[0]):
        with case:
            assert "gpu_idles_between_launches" not in found(*processes)


def test_items_that_wait_on_purpose_are_no_sign_of_a_slow_host() -> None:
    known = facts(gpu(0.5, 0.4), waiting())
    [model] = known.models
    assert gpu_idles_between_launches(model, known)
    leaving = replace(model, cheaper=Cheaper(("dear",), ("cheap",)))
    assert gpu_idles_between_launches(leaving, known) is None


def test_kernels_show_that_launches_run_on_a_gpu_though_hardly_an_sm_is_active() -> None:
    for busy, code in ((0.5, "gpu_idles_between_launches"), (0.95, "launches_too_small")):
        made = gpu(busy, 0.01)
        assert code not in found(made, waiting())
        made.count("device_active_seconds_total", 18, device="cuda", kind="kernel")
        assert code in found(made, waiting())


def test_work_that_has_just_begun_is_not_host_bound() -> None:
    """Its worker was idle for most of the minute, and is busy since."""
    report = gpu(0.3, 0.2).report()
    busy = ("millrace_device_busy_seconds_total", (("device", "cpu"),))
    for seconds, expected in ((9.9, False), (5.0, True)):
        delta = replace(report.delta, recent=Recent(10.0, {busy: seconds}))
        codes = codes_of(replace(report, delta=delta), waiting().report())
        assert ("gpu_idles_between_launches" in codes) == expected


def codes_of(*reports: Report) -> set[str]:
    return {one.code for one in diagnose(Facts.from_reports(ReportSet(reports), [MODEL]))}


def test_the_share_of_several_gpus_is_their_mean() -> None:
    busy = with_gpu(worker(1.0, name="2"), 0.9)
    assert "gpu_idles_between_launches" not in found(gpu(0.62, 0.5), busy, waiting())
    said = found(gpu(0.5, 0.4), busy, waiting())["gpu_idles_between_launches"]
    assert said.words.startswith("host-bound: the 2 GPUs of m@1 have a launch 75 % of the time")


# -- launches


def test_launches_that_leave_most_of_a_gpu_unused_are_too_small() -> None:
    said = found(gpu(0.81, 0.39), waiting())["launches_too_small"]
    assert said.words == (
        "launches of m@1 are too small for its GPU (H100): there is a launch 81 % of the time, and "
        "the SMs are active 39 %; one has 4.0 of up to 32 entries and takes 100 ms"
    )
    assert said.severity == "info"
    assert found(gpu(0.9, 0.3), calls(0.06))["launches_too_small"].severity == "warning"
    kernels = found(gpu(0.81, 0.39, kind="kernel"), waiting())["launches_too_small"]
    assert "and a kernel runs 39 %" in kernels.words
    cases = {
        "an active GPU": (gpu(0.9, 0.41), waiting()),
        "a GPU that has time": (gpu(0.79, 0.3), waiting()),
        "nothing waits": (gpu(0.9, 0.3), waiting(0)),
        "few launches": (gpu(0.9, 0.3, launches=9), waiting()),
        "launches on its CPU": (gpu(0.9, 0.01), waiting()),
    }
    for (_, processes), case in each(cases.items(), name=lambda one: one[0]):
        with case:
            assert "launches_too_small" not in found(*processes)


@pytest.mark.parametrize(
    ("rows", "limits", "waits", "says"),
    [
        (26, Limits(max_batch=32), True, "a larger limits.max_batch (now 32)"),
        (25, Limits(max_batch=32, max_tokens=8192), True, "a larger limits.max_tokens (now 8192)"),
        (25, Limits(max_batch=32), True, "a longer limits.window_ms"),
        (25, Limits(max_batch=32, max_tokens=8192), False, "a longer target_ms"),
    ],
)
def test_the_limit_that_keeps_launches_small_is_named(
    rows: float, limits: Limits, waits: bool, says: str
) -> None:
    made = with_gpu(launched(worker(0.95), rows=rows), 0.2)
    reports = [one.report() for one in (made, calls(0.06), waiting(31 if waits else 0))]
    models = [replace(MODEL, limits=limits)]
    by_code: dict[str, Diagnosis] = {
        one.code: one for one in diagnose(Facts.from_reports(ReportSet(reports), models))
    }
    assert by_code["launches_too_small"].advice.startswith(says)


# -- one GPU


def throttled(share: float, reason: str, busy: float = 0.9, name: str = "1") -> Process:
    made = with_gpu(worker(busy, name=name), power_w=520.4, power_limit_w=700.0, temperature_c=88)
    return made.count("device_throttled_seconds_total", 60 * share, device="cuda", reason=reason)


def test_a_gpu_is_throttled_where_slower_clocks_last_and_cost_something() -> None:
    said = found(throttled(0.26, "hw_thermal_slowdown"))["gpu_throttled"]
    assert said.words == (
        "the GPU of worker 1 (H100) is throttled 26 % of the time (hw_thermal_slowdown, 88 °C, "
        "520 W of 700 W): its launches take longer"
    )
    assert (said.severity, said.about) == ("warning", "worker:1")
    assert said.advice.startswith("it is too hot")
    assert visible_to_tenants([said]) == []
    capped = found(throttled(0.51, "sw_power_cap"))["gpu_throttled"]
    assert (capped.severity, "power limit" in capped.advice) == ("info", True)
    two = found(throttled(0.3, "hw_slowdown"), throttled(0.9, "hw_slowdown", name="2"))
    assert two["gpu_throttled"].about == "worker:2"
    assert two["gpu_throttled"].words.endswith("; 1 other GPU too")
    for quiet, case in each(
        (
            throttled(0.24, "hw_thermal_slowdown"),
            throttled(0.49, "sw_power_cap"),
            throttled(1.0, "hw_slowdown", busy=0.24),
        )
    ):
        with case:
            assert "gpu_throttled" not in found(quiet)


def test_errors_of_a_gpu_are_told_and_those_of_programs_are_no_fault_of_it() -> None:
    said = found(with_gpu(worker(), ecc_uncorrected=2, xids={79: 1}))["gpu_errors"]
    assert said.words == ("the GPU of worker 1 (H100) reports 2 uncorrected memory errors, Xid 79")
    assert (said.severity, said.about) == ("warning", "worker:1")
    assert "reset the GPU" in said.advice
    program = with_gpu(worker(name="2"), xids={31: 2})
    said = found(program)["gpu_errors"]
    assert (said.severity, "illegal access" in said.advice) == ("info", True)
    both = found(program, with_gpu(worker(), xids={79: 1}))["gpu_errors"]
    assert (both.about, both.words.endswith("Xid 79; 1 other GPU too")) == ("worker:1", True)
    assert "gpu_errors" not in found(with_gpu(worker(), ecc_uncorrected=0, xids={}))
    assert "gpu_errors" not in found(with_gpu(worker()))


def test_a_gpu_that_is_well_used_has_no_findings() -> None:
    made = with_gpu(launched(worker(0.97)), 0.75, throttling=(), ecc_uncorrected=0, xids={})
    assert found(made, waiting()) == {}
