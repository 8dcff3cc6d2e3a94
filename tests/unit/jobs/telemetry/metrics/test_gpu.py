"""Metrics of a GPU, and its reading in a worker's report."""

import orjson
from prometheus_client import CollectorRegistry

from jobs.telemetry import gpu_reading
from jobs.telemetry.gpu_reading import GpuReading
from jobs.telemetry.metrics import gpu
from jobs.telemetry.metrics.gpu import GpuMetrics
from jobs.telemetry.metrics.metrics import REGISTRY

FULL = GpuReading(
    seconds=5.0,
    sm_activity=0.4,
    kernel_activity=0.9,
    memory_used=20,
    memory_total=80,
    power_w=650.5,
    power_limit_w=700.0,
    temperature_c=61,
    throttling=("sw_power_cap",),
    ecc_uncorrected=1,
    xids={79: 1, 31: 2},
)


def value(name: str, **labels: str) -> float | None:
    registry: CollectorRegistry = REGISTRY
    return registry.get_sample_value(f"millrace_device_{name}", labels)


def test_activity_and_throttling_add_up_by_the_time_between_readings() -> None:
    its = GpuMetrics("t1")
    its.record(FULL)
    its.record(GpuReading(3.0, kernel_activity=0.5, throttling=()))
    assert value("active_seconds_total", device="t1", kind="sm") == 2.0
    assert value("active_seconds_total", device="t1", kind="kernel") == 6.0
    assert value("throttled_seconds_total", device="t1", reason="sw_power_cap") == 5.0


def test_what_is_not_known_any_more_has_no_gauge_and_what_never_was_no_series() -> None:
    its = GpuMetrics("t2")
    its.record(FULL)
    assert value("power_watts", device="t2", kind="used") == 650.5
    assert value("power_watts", device="t2", kind="limit") == 700.0
    assert value("temperature_celsius", device="t2") == 61
    assert value("ecc_uncorrected_errors", device="t2") == 1
    its.record(GpuReading(5.0))
    for name in ("power_watts", "temperature_celsius", "ecc_uncorrected_errors"):
        labels = {"kind": "used"} if name == "power_watts" else {}
        assert value(name, device="t2", **labels) is None
    GpuMetrics("t3").record(GpuReading(5.0))
    samples = [
        s for metric in (gpu.ACTIVE_S, gpu.XIDS) for m in metric.collect() for s in m.samples
    ]
    assert [s for s in samples if s.labels["device"] == "t3"] == []


def test_xids_are_counted_once_though_each_reading_tells_all() -> None:
    its = GpuMetrics("t4")
    for xids in ({79: 1}, {79: 1, 31: 2}, {79: 2, 31: 2}):
        its.record(GpuReading(5.0, xids=xids))
    assert value("xid_errors_total", device="t4", xid="79") == 2
    assert value("xid_errors_total", device="t4", xid="31") == 2


def test_a_reading_survives_its_report_and_one_of_another_release_is_read() -> None:
    told = orjson.loads(orjson.dumps({gpu_reading.KEY: FULL.as_json()}))
    assert gpu_reading.of_details(told) == FULL
    assert gpu_reading.of_details({}) is None
    assert gpu_reading.of_details({"gpu": None}) is None
    later = {"sm_activity": 0.5, "nvlink_errors": 7}
    assert gpu_reading.of_details({"gpu": later}) == GpuReading(0.0, sm_activity=0.5)


def test_errors_are_told_in_words_and_those_of_programs_apart() -> None:
    assert FULL.errors == ["1 uncorrected memory error", "Xid 31, 2 times", "Xid 79"]
    assert FULL.faults == {79: 1}  # 31 is an illegal access, by a program
    assert (GpuReading(5.0).errors, GpuReading(5.0, ecc_uncorrected=0, xids={}).errors) == ([], [])
