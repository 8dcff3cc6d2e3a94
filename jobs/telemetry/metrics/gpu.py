"""Metrics of a worker's GPU, as NVML tells them. What it doesn't tell has no series."""

from jobs.telemetry.gpu_reading import GpuReading
from jobs.telemetry.metrics.labels import GaugeTable
from jobs.telemetry.metrics.metrics import _counter, _gauge, _section

_section("worker", "GPUs")

ACTIVE_S = _counter(
    "millrace_device_active_seconds_total{device,kind}",
    "Activity of the GPU, added up: its rate is the mean activity, 0 to 1. By kind: sm (share of "
    "the SMs that had work; Hopper and later), kernel (share of the time with a kernel, sampled).",
)
THROTTLED_S = _counter(
    "millrace_device_throttled_seconds_total{device,reason}",
    "Time for which the GPU ran at lower clocks, sampled every few seconds, by reason: "
    "sw_power_cap, hw_slowdown, sync_boost, sw_thermal_slowdown, hw_thermal_slowdown, "
    "hw_power_brake_slowdown.",
)
POWER_W = _gauge(
    "millrace_device_power_watts{device,kind}", "Power of the whole GPU, by kind: used, limit."
)
TEMPERATURE_C = _gauge("millrace_device_temperature_celsius{device}", "Temperature of the GPU.")
ECC_UNCORRECTED = _gauge(
    "millrace_device_ecc_uncorrected_errors{device}",
    "Uncorrected errors of the GPU's memory since its driver was loaded.",
)
XIDS = _counter(
    "millrace_device_xid_errors_total{device,xid}",
    "Critical errors of the GPU by Xid number, whichever process had them.",
)


class GpuMetrics:
    """Metrics of the GPU of one worker. device: label of its series."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._power = GaugeTable(POWER_W)
        self._temperature, self._ecc = GaugeTable(TEMPERATURE_C), GaugeTable(ECC_UNCORRECTED)
        self._xids: dict[int, int] = {}

    def record(self, reading: GpuReading | None) -> None:
        """Sets the gauges to a reading, and counts what happened since the one before. None: the
        gauges tell nothing, rather than what was."""
        device, reading = self._device, reading or GpuReading(0.0)
        activity = {"sm": reading.sm_activity, "kernel": reading.kernel_activity}
        for kind, share in activity.items():
            if share is not None:
                ACTIVE_S.labels(device, kind).inc(share * reading.seconds)
        for reason in reading.throttling or ():
            THROTTLED_S.labels(device, reason).inc(reading.seconds)
        power = {"used": reading.power_w, "limit": reading.power_limit_w}
        self._power.set({(device, k): watts for k, watts in power.items() if watts is not None})
        temperature, errors = reading.temperature_c, reading.ecc_uncorrected
        self._temperature.set({} if temperature is None else {(device,): temperature})
        self._ecc.set({} if errors is None else {(device,): errors})
        for xid, count in (reading.xids or {}).items():
            XIDS.labels(device, str(xid)).inc(count - self._xids.get(xid, 0))
            self._xids[xid] = count
