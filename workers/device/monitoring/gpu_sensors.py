"""Readings of a worker's GPU by NVML: activity, memory, power, temperature, throttling, errors.

Names and units are those of NVML's reference (docs.nvidia.com/deploy/nvml-api).
"""

import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jobs import clock
from jobs.telemetry.gpu_reading import GpuReading
from workers.device.monitoring import gpu_identity

_log = logging.getLogger(__name__)

THROTTLING = {
    "sw_power_cap": 0x04,  # the power limit
    "hw_slowdown": 0x08,  # clocks halved or worse by the hardware: one of the two below, or both
    "sync_boost": 0x10,  # waits for a slower GPU of its group
    "sw_thermal_slowdown": 0x20,  # hotter than its target
    "hw_thermal_slowdown": 0x40,  # hotter than it may be
    "hw_power_brake_slowdown": 0x80,  # asked for by the power supply or the server
}
"""Bits of nvmlClocksEventReasons that cost speed, by name: not that it idles, nor clocks that were
set."""

_MOST_EVENTS = 64  # read at a time: a storm of them must not hold up the report
_WHOLE_GPU = 0xFFFFFFFF  # instance of an event that concerns no MIG part alone
_MILLI = 1000.0  # mW in a W


class GpuSensors:
    """Sensors of the GPU of one worker, opened at the first reading that finds it.

    device: in torch's terms; one that is no CUDA device has no readings, and NVML isn't loaded.
    load: returns the module pynvml, initialized."""

    def __init__(self, device: str, load: Callable[[], Any] | None = None) -> None:
        self._device, self._load = device, load or _initialized
        self._closed = not device.startswith("cuda")
        self._warned = False
        self._nvml: Any = None
        self._gpu: _Gpu | None = None

    def read(self) -> GpuReading | None:
        """Returns the state now; None without NVML, and while it can't be told which GPU is the
        worker's. Takes a few milliseconds; one thread at a time."""
        if self._closed:
            return None
        try:
            self._nvml = self._nvml or self._load()
        except Exception as error:  # without NVML: ImportError or NVMLError
            _log.warning("no figures of the GPU: NVML can't be used: %s", error)
            self._closed = True
            return None
        try:
            return self._read()
        except Exception as error:  # none may end a report; the next one tries again
            log = _log.debug if self._warned else _log.warning
            log("no figures of the GPU in this report: %s", error)
            self._warned = True
            return None

    def _read(self) -> GpuReading | None:
        if self._gpu is None:
            handle = gpu_identity.handle_of(self._nvml, self._device)
            if handle is None:
                return None
            self._gpu = _Gpu(self._nvml, handle)
        return self._gpu.read()


def _initialized() -> Any:
    import pynvml  # of nvidia-ml-py; only workers with a GPU load it

    pynvml.nvmlInit()
    return pynvml


@dataclass(slots=True)
class _Gpu:
    """Handles of one GPU: of all of it, and of the part that the worker has (MIG), else the same.

    Sensors that fail are asked again: a driver may refuse once and answer later."""

    nvml: Any
    part: Any
    whole: Any = None
    instance: int | None = None  #: number of the part's GPU instance
    gpm: "_GpmSampler | None" = None
    events: Any = None  #: event set of Xids; None: not supported
    xids: Counter[int] = field(default_factory=Counter)
    read_s: float | None = None  #: time of the last reading

    def __post_init__(self) -> None:
        self.whole = self.part
        its_mig = self._get("nvmlDeviceIsMigDeviceHandle", self.part)  # a ctypes.c_uint
        if its_mig is not None and its_mig.value:
            self.whole = self._get("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", self.part)
            self.instance = self._get("nvmlDeviceGetGpuInstanceId", self.part)
        self.gpm = _GpmSampler.open(self.nvml, self.whole, self.instance)
        self.events = self._register()

    def read(self) -> GpuReading:
        """Reads every sensor once."""
        now_s = clock.monotonic()
        seconds = 0.0 if self.read_s is None else now_s - self.read_s
        self.read_s = now_s
        memory = self._get("nvmlDeviceGetMemoryInfo", self.part)
        return GpuReading(
            seconds,
            sm_activity=self.gpm.sm_activity() if self.gpm else None,
            kernel_activity=self._kernel_activity(),
            memory_used=memory and int(memory.used),
            memory_total=memory and int(memory.total),
            power_w=self._watts("nvmlDeviceGetPowerUsage"),
            power_limit_w=self._watts("nvmlDeviceGetEnforcedPowerLimit"),
            temperature_c=self._temperature(),
            throttling=self._throttling(),
            ecc_uncorrected=self._get(
                "nvmlDeviceGetTotalEccErrors",
                self.whole,
                self.nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                self.nvml.NVML_VOLATILE_ECC,
            ),
            xids=self._read_xids(),
        )

    def _kernel_activity(self) -> float | None:
        rates = self._get("nvmlDeviceGetUtilizationRates", self.part)  # not for MIG
        return None if rates is None else _share(rates.gpu)

    def _watts(self, function: str) -> float | None:
        milliwatts = self._get(function, self.whole)
        return None if milliwatts is None else milliwatts / _MILLI

    def _temperature(self) -> int | None:
        sensor = self.nvml.NVML_TEMPERATURE_GPU
        now = self._get("nvmlDeviceGetTemperatureV", self.whole, sensor)  # drivers since 570
        if now is None:
            now = self._get("nvmlDeviceGetTemperature", self.whole, sensor)
        return None if now is None else int(now)

    def _throttling(self) -> tuple[str, ...] | None:
        bits = self._get("nvmlDeviceGetCurrentClocksEventReasons", self.whole)  # drivers since 535
        if bits is None:
            bits = self._get("nvmlDeviceGetCurrentClocksThrottleReasons", self.whole)
        if bits is None:
            return None
        return tuple(name for name, bit in THROTTLING.items() if bits & bit)

    def _register(self) -> Any | None:
        """Subscribes to critical Xid errors. Events before are not told."""
        events = self._get("nvmlEventSetCreate")
        if events is None or self.whole is None:
            return None
        try:
            self.nvml.nvmlDeviceRegisterEvents(
                self.whole, self.nvml.nvmlEventTypeXidCriticalError, events
            )
        except self.nvml.NVMLError:
            self._get("nvmlEventSetFree", events)
            return None
        return events

    def _read_xids(self) -> dict[int, int] | None:
        if self.events is None:
            return None
        for _ in range(_MOST_EVENTS):
            event = self._get("nvmlEventSetWait_v2", self.events, 0)  # ms: without waiting
            if event is None:  # most often NVMLError_Timeout: there is none
                break
            if event.eventType != self.nvml.nvmlEventTypeXidCriticalError:
                continue
            if self.instance is None or event.gpuInstanceId in (self.instance, _WHOLE_GPU):
                self.xids[int(event.eventData)] += 1
        return dict(self.xids)

    def _get(self, function: str, *arguments: Any) -> Any | None:
        """Returns what a function of NVML returns; None where it is not supported, or fails."""
        if arguments and arguments[0] is None:
            return None
        try:
            return getattr(self.nvml, function)(*arguments)
        except self.nvml.NVMLError:
            return None


class _GpmSampler:
    """Two samples of GPU performance monitoring (GPM), whose difference is the SMs' activity."""

    def __init__(self, nvml: Any, take: Callable[[Any], Any], samples: tuple[Any, Any]) -> None:
        self._nvml, self._take = nvml, take
        self._before, self._spare = samples
        self._has_before = False

    @classmethod
    def open(cls, nvml: Any, gpu: Any, instance: int | None) -> "_GpmSampler | None":
        """Returns the sampler of a GPU, or of its MIG instance; None where it has no GPM."""
        if gpu is None:
            return None
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
                return None
            samples = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        except nvml.NVMLError:
            return None
        if instance is None:
            return cls(nvml, lambda sample: nvml.nvmlGpmSampleGet(gpu, sample), samples)
        return cls(nvml, lambda sample: nvml.nvmlGpmMigSampleGet(gpu, instance, sample), samples)

    def sm_activity(self) -> float | None:
        """Returns the mean share of busy SMs since the call before, 0 to 1; None at first."""
        try:
            self._take(self._spare)
            value = self._between(self._before, self._spare) if self._has_before else None
        except self._nvml.NVMLError:
            return None
        self._before, self._spare, self._has_before = self._spare, self._before, True
        return value

    def _between(self, first: Any, second: Any) -> float | None:
        asked = self._nvml.c_nvmlGpmMetricsGet_t()
        asked.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        asked.sample1, asked.sample2, asked.numMetrics = first, second, 1
        asked.metrics[0].metricId = self._nvml.NVML_GPM_METRIC_SM_UTIL
        self._nvml.nvmlGpmMetricsGet(asked)
        metric = asked.metrics[0]
        if metric.nvmlReturn != self._nvml.NVML_SUCCESS or not math.isfinite(metric.value):
            return None
        return _share(metric.value)


def _share(percent: float) -> float:
    return min(1.0, max(0.0, percent / 100))
