"""A stand-in for libnvidia-ml.so, which the real module pynvml calls with its structs.

It answers as NVML's reference says: power in mW, shares in per cent, error codes for all that a
device doesn't support; a function that the driver lacks is absent.
"""

import ctypes
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pynvml
import pytest

WHOLE, PART = 0x1000, 0x2000  # handles of a GPU, and of a MIG part of it
UUID, MIG_UUID, ADDRESS = "GPU-11", "MIG-22", "00000001:c1:00.0"
INSTANCE = 3
NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED


@dataclass
class FakeGpu:
    """State of the only GPU, or of the first of `count`; None: the device doesn't support it."""

    count: int = 1
    mig: bool = False
    power_mw: int | None = 350_000
    limit_mw: int | None = 700_000
    temperature: int | None = 61
    kernel_percent: int | None = 97
    reasons: int | None = 0
    ecc: int | None = 0
    memory: tuple[int, int] | None = (20 << 30, 80 << 30)  # used, total
    sm_percent: float | None = 25.0  # None: no GPM
    events: deque[tuple[int, int, int]] | None = field(
        default_factory=deque
    )  # type, data, instance
    sampled: list[tuple[int, int | None]] = field(default_factory=list)  # handle, instance
    registered: list[int] = field(default_factory=list)  # handles


def install(monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu, absent: tuple[str, ...] = ()) -> None:
    """Puts the stand-in in the place of the library. absent: functions that the driver lacks."""
    library = _Library(
        {name: function for name, function in _functions(gpu).items() if name not in absent}
    )
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})


class _Library:
    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.__dict__.update(functions)


def _functions(gpu: FakeGpu) -> dict[str, Any]:
    def is_part(handle: Any) -> bool:
        return address(handle) == PART

    def memory(handle: Any, out: Any) -> int:
        if gpu.memory is None:
            return NOT_SUPPORTED
        _target(out).used, _target(out).total = gpu.memory
        return 0

    def utilization(handle: Any, out: Any) -> int:
        if gpu.kernel_percent is None or is_part(handle):
            return NOT_SUPPORTED
        _target(out).gpu = gpu.kernel_percent
        return 0

    def number(of: str) -> Any:
        def get(handle: Any, *arguments: Any) -> int:
            if is_part(handle):
                return pynvml.NVML_ERROR_INVALID_ARGUMENT
            return _set(arguments[-1], getattr(gpu, of))

        return get

    def temperature(handle: Any, out: Any) -> int:
        if gpu.temperature is None or is_part(handle):
            return NOT_SUPPORTED
        assert _target(out).version == pynvml.nvmlTemperature_v1
        _target(out).temperature = gpu.temperature
        return 0

    def by_uuid(uuid: Any, out: Any) -> int:
        found = {UUID: WHOLE, MIG_UUID: PART}.get(uuid.value.decode())
        return _point(out, found) if found else pynvml.NVML_ERROR_NOT_FOUND

    def by_bus(bus_id: Any, out: Any) -> int:
        known = bus_id.value.decode() == ADDRESS
        return _point(out, WHOLE) if known else pynvml.NVML_ERROR_NOT_FOUND

    def mig_mode(handle: Any, current: Any, pending: Any) -> int:
        _set(pending, int(gpu.mig))
        return _set(current, int(gpu.mig))

    def sample(handle: Any, *rest: Any) -> int:
        if gpu.sm_percent is None or (gpu.mig and len(rest) == 1):
            return NOT_SUPPORTED
        gpu.sampled.append((address(handle), rest[0] if len(rest) == 2 else None))
        taken[address(rest[-1])] = len(gpu.sampled)
        return 0

    def metrics(asked: Any) -> int:
        its = _target(asked)
        assert (its.version, its.numMetrics) == (pynvml.NVML_GPM_METRICS_GET_VERSION, 1)
        assert its.metrics[0].metricId == pynvml.NVML_GPM_METRIC_SM_UTIL
        last = len(gpu.sampled)
        assert [taken.get(address(one)) for one in (its.sample1, its.sample2)] == [last - 1, last]
        its.metrics[0].nvmlReturn, its.metrics[0].value = 0, gpu.sm_percent
        return 0

    def gpm_support(handle: Any, out: Any) -> int:
        _target(out).isSupportedDevice = int(gpu.sm_percent is not None)
        return 0

    def register(handle: Any, types: Any, events: Any) -> int:
        if gpu.events is None or is_part(handle):
            return NOT_SUPPORTED
        assert types.value == pynvml.nvmlEventTypeXidCriticalError
        gpu.registered.append(address(handle))
        return 0

    def wait(events: Any, out: Any, timeout_ms: Any) -> int:
        assert timeout_ms.value == 0
        if not gpu.events:
            return pynvml.NVML_ERROR_TIMEOUT
        its = _target(out)
        its.eventType, its.eventData, its.gpuInstanceId = gpu.events.popleft()
        return 0

    def of_part(write: Any, value: int) -> Any:
        def get(handle: Any, out: Any) -> int:
            return write(out, value) if is_part(handle) else pynvml.NVML_ERROR_INVALID_ARGUMENT

        return get

    taken: dict[int, int] = {}  # number of the sample that a buffer holds
    samples = iter(range(0x3000, 0x4000, 8))
    return {
        "nvmlInitWithFlags": lambda flags: 0,
        "nvmlDeviceGetCount_v2": lambda out: _set(out, gpu.count),
        "nvmlDeviceGetHandleByIndex_v2": lambda index, out: _point(out, WHOLE),
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetHandleByPciBusId_v2": by_bus,
        "nvmlDeviceGetMigMode": mig_mode,
        "nvmlDeviceIsMigDeviceHandle": lambda handle, out: _set(out, int(is_part(handle))),
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": of_part(_point, WHOLE),
        "nvmlDeviceGetGpuInstanceId": of_part(_set, INSTANCE),
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetUtilizationRates": utilization,
        "nvmlDeviceGetPowerUsage": number("power_mw"),
        "nvmlDeviceGetEnforcedPowerLimit": number("limit_mw"),
        "nvmlDeviceGetTemperatureV": temperature,
        "nvmlDeviceGetTemperature": number("temperature"),
        "nvmlDeviceGetCurrentClocksEventReasons": number("reasons"),
        "nvmlDeviceGetCurrentClocksThrottleReasons": number("reasons"),
        "nvmlDeviceGetTotalEccErrors": number("ecc"),
        "nvmlEventSetCreate": lambda out: _point(out, 0x5000),
        "nvmlEventSetFree": lambda events: 0,
        "nvmlDeviceRegisterEvents": register,
        "nvmlEventSetWait_v2": wait,
        "nvmlGpmQueryDeviceSupport": gpm_support,
        "nvmlGpmSampleAlloc": lambda out: _point(out, next(samples)),
        "nvmlGpmSampleGet": sample,
        "nvmlGpmMigSampleGet": sample,
        "nvmlGpmMetricsGet": metrics,
    }


def _target(out: Any) -> Any:
    """Returns what a ctypes.byref points to."""
    return out._obj  # noqa: SLF001


def _set(out: Any, value: int | None) -> int:
    """Writes a number where a function returns it."""
    if value is None:
        return NOT_SUPPORTED
    _target(out).value = value
    return 0


def _point(out: Any, to: int) -> int:
    """Writes an opaque pointer where a function returns it."""
    ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = to
    return 0


def address(handle: Any) -> int:
    """Returns the address in an opaque pointer, by which the stand-in knows its objects."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
