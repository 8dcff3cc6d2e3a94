"""Reports of a worker about its device."""

import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.settings import Settings
from jobs.telemetry.metrics.metrics import REGISTRY
from tests.unit.workers.device.monitoring import fake_nvml
from tests.unit.workers.device.monitoring.fake_nvml import FakeGpu
from workers.process.status_report import StatusReporter


def reporter(device: str) -> StatusReporter:
    """A worker without models."""
    hosts = SimpleNamespace(utilization=SimpleNamespace(update=lambda: None), by_key={})
    loader = SimpleNamespace(rows=list)
    slices = SimpleNamespace(state="ready", in_flight_by_model=Counter)
    return StatusReporter(Settings(device=device), *cast(Any, (hosts, loader, slices)))


def test_a_worker_with_a_gpu_reports_what_nvml_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # its models are in child processes
    fake_nvml.install(monkeypatch, FakeGpu(memory=(3 << 30, 9 << 30)))
    told = reporter("cuda").report()
    assert told["gpu"]["power_w"] == 350.0
    assert told["memory"] == {"used": 3 << 30, "total": 9 << 30}
    used = REGISTRY.get_sample_value(
        "millrace_device_power_watts", {"device": "cuda", "kind": "used"}
    )
    assert used == 350.0


def test_a_worker_without_one_or_whose_nvml_fails_reports_all_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = reporter("cpu").report()
    assert (told["gpu"], told["device"]) == (None, "cpu")
    assert 0 < told["memory"]["used"] < told["memory"]["total"]
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    told = reporter("cuda").report()
    assert (told["gpu"], told["device"], told["state"]) == (None, "cuda", "ready")
