"""Readings of a GPU by the real module pynvml, on a stand-in for NVML's library."""

import builtins
import logging
import sys
from collections import deque
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml
import pytest

from jobs import clock
from jobs.telemetry.gpu_reading import GpuReading
from tests.support.cases import each
from tests.unit.workers.device.monitoring import fake_nvml
from tests.unit.workers.device.monitoring.fake_nvml import (
    ADDRESS,
    INSTANCE,
    MIG_UUID,
    PART,
    UUID,
    WHOLE,
    FakeGpu,
)
from workers.device.monitoring.gpu_identity import handle_of
from workers.device.monitoring.gpu_sensors import GpuSensors

XID = pynvml.nvmlEventTypeXidCriticalError
ANY = 0xFFFFFFFF


@pytest.fixture(autouse=True)
def _no_devices_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)


def sensors(
    monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu, device: str = "cuda", absent: Any = ()
) -> GpuSensors:
    fake_nvml.install(monkeypatch, gpu, absent)
    return GpuSensors(device)


def read(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu, **more: Any) -> GpuReading:
    """The second reading: the first has no activity of SMs, which lies between two samples."""
    its = sensors(monkeypatch, gpu, **more)
    its.read()
    return now(its)


def now(its: GpuSensors) -> GpuReading:
    return its.read() or pytest.fail("no reading")


def test_a_reading_is_in_base_units_and_activity_lies_between_two_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = FakeGpu(reasons=0x01 | 0x02 | 0x04 | 0x40, ecc=2)
    its = sensors(monkeypatch, gpu)
    times = iter((100.0, 105.0, 111.0))
    monkeypatch.setattr(clock, "monotonic", lambda: next(times))
    first = its.read()
    assert first == GpuReading(
        seconds=0.0,
        sm_activity=None,
        kernel_activity=0.97,
        memory_used=20 << 30,
        memory_total=80 << 30,
        power_w=350.0,
        power_limit_w=700.0,
        temperature_c=61,
        throttling=("sw_power_cap", "hw_thermal_slowdown"),  # not: idle, clocks that were set
        ecc_uncorrected=2,
        xids={},
    )
    assert its.read() == replace(first, seconds=5.0, sm_activity=0.25)
    gpu.sm_percent = 100.4  # as measured: rounded, and never more than all
    assert its.read() == replace(first, seconds=6.0, sm_activity=1.0)
    assert gpu.sampled == [(WHOLE, None)] * 3


def test_what_a_device_does_not_support_is_unknown_and_no_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = {
        "power_mw": "power_w",
        "limit_mw": "power_limit_w",
        "temperature": "temperature_c",
        "kernel_percent": "kernel_activity",
        "reasons": "throttling",
        "ecc": "ecc_uncorrected",
        "sm_percent": "sm_activity",
        "events": "xids",
        "memory": "memory_used",
    }
    for (of, its), case in each(fields.items()):
        with case, pytest.MonkeyPatch.context() as patch:
            reading = read(patch, replace(FakeGpu(), **{of: None}))
            others = {*fields.values()} - {its}
            assert getattr(reading, its) is None
            assert [name for name in others if getattr(reading, name) is None] == []
    nothing = dict.fromkeys(fields)
    reading = read(monkeypatch, FakeGpu(**nothing))
    assert {*reading.as_json().values()} == {None, reading.seconds}


def test_functions_that_an_older_driver_lacks_have_elder_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newer = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV")
    reading = read(monkeypatch, FakeGpu(reasons=0x80), absent=newer)
    assert reading.throttling == ("hw_power_brake_slowdown",)
    assert reading.temperature_c == 61
    older = ("nvmlGpmQueryDeviceSupport", "nvmlEventSetCreate")
    reading = read(monkeypatch, FakeGpu(), absent=older)
    assert (reading.sm_activity, reading.xids) == (None, None)


def test_xids_are_counted_by_number_since_the_start_without_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = FakeGpu()
    its = sensors(monkeypatch, gpu)
    assert now(its).xids == {}
    assert gpu.registered == [WHOLE]
    gpu.events = deque([(XID, 79, ANY), (XID, 31, ANY), (0, 5, ANY), (XID, 31, ANY)])
    assert now(its).xids == {79: 1, 31: 2}
    assert now(its).xids == {79: 1, 31: 2}
    gpu.events.extend([(XID, 48, ANY)] * 1000)  # a storm is read over several reports
    assert 0 < now(its).as_json()["xids"]["48"] < 1000


def test_a_part_of_a_gpu_has_its_own_memory_and_activity_and_the_sensors_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", MIG_UUID)
    gpu = FakeGpu(mig=True, count=8, reasons=0x20)
    gpu.events = deque([(XID, 94, INSTANCE), (XID, 94, INSTANCE + 1), (XID, 95, ANY)])
    reading = read(monkeypatch, gpu)
    assert {*gpu.sampled} == {(WHOLE, INSTANCE)}
    assert (reading.sm_activity, reading.kernel_activity) == (0.25, None)
    assert (reading.power_w, reading.temperature_c) == (350.0, 61)
    assert (reading.throttling, reading.ecc_uncorrected) == (("sw_thermal_slowdown",), 0)
    assert reading.xids == {94: 1, 95: 1}  # not that of another part


def test_without_nvml_there_is_one_line_and_no_reading(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    fake_nvml.install(monkeypatch, FakeGpu(), absent=("nvmlInitWithFlags",))
    lost = GpuSensors("cuda")
    assert [lost.read() for _ in range(3)] == [None] * 3
    assert [record.message for record in caplog.records] == [
        "no figures of the GPU: NVML can't be used: Function Not Found"
    ]


def test_other_devices_never_load_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "__import__", lambda *_, **__: pytest.fail("imported"))
    for device in ("cpu", "mps", "xpu"):
        assert GpuSensors(device).read() is None


# -- which GPU it is


def torch_with(**properties: Any) -> SimpleNamespace:
    """Torch that has initialized CUDA, and whose device 1 has these properties."""
    known = {1: SimpleNamespace(**properties)}
    cuda = SimpleNamespace(is_initialized=lambda: True, get_device_properties=known.__getitem__)
    return SimpleNamespace(cuda=cuda)


def test_a_gpu_is_read_once_it_is_known_for_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    by_bus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    mine, no_torch = torch_with(uuid=UUID.removeprefix("GPU-")), None
    cases: dict[str, tuple[FakeGpu, str, dict[str, str], Any, int | None]] = {
        "the only one": (FakeGpu(), "cuda", {}, no_torch, WHOLE),
        "the only one, first": (FakeGpu(), "cuda:0", {"CUDA_VISIBLE_DEVICES": "0"}, None, WHOLE),
        "one of several": (FakeGpu(count=2), "cuda", {}, no_torch, None),
        "several by bus": (FakeGpu(count=2), "cuda:1", by_bus, no_torch, WHOLE),
        "hidden": (FakeGpu(), "cuda:1", {"CUDA_VISIBLE_DEVICES": "0"}, no_torch, None),
        "none visible": (FakeGpu(), "cuda", {"CUDA_VISIBLE_DEVICES": ""}, no_torch, None),
        "by UUID": (
            FakeGpu(count=2), "cuda:1", {"CUDA_VISIBLE_DEVICES": f"GPU-0, {UUID}"}, None, WHOLE,
        ),
        "a part": (FakeGpu(mig=True), "cuda", {"CUDA_VISIBLE_DEVICES": MIG_UUID}, None, PART),
        "some part": (FakeGpu(mig=True), "cuda", {}, no_torch, None),
        "by torch": (FakeGpu(count=2), "cuda:1", {}, mine, WHOLE),
        "a part by torch": (FakeGpu(mig=True), "cuda:1", {}, torch_with(uuid="22"), PART),
        "by torch's address": (
            FakeGpu(count=2), "cuda:1", {},
            torch_with(uuid="", pci_domain_id=1, pci_bus_id=0xC1, pci_device_id=0), WHOLE,
        ),
        "unknown to NVML": (FakeGpu(count=2), "cuda:1", {}, torch_with(uuid="33"), None),
    }  # fmt: skip
    assert ADDRESS == "00000001:c1:00.0"
    for name, case in each(cases):
        gpu, device, environment, torch, expected = cases[name]
        with case, pytest.MonkeyPatch.context() as patch:
            fake_nvml.install(patch, gpu)
            patch.setitem(sys.modules, "torch", torch)
            found = handle_of(pynvml, device, environment)
            assert (None if found is None else fake_nvml.address(found)) == expected


def test_a_gpu_is_looked_for_again_until_cuda_is_initialized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    its = sensors(monkeypatch, FakeGpu(count=2), "cuda:1")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert its.read() is None
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))  # another thread imports it
    assert its.read() is None
    monkeypatch.setitem(sys.modules, "torch", torch_with(uuid=UUID.removeprefix("GPU-")))
    assert its.read() is not None
