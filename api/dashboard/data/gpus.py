"""GPUs of workers as pages show them: activity over the last minute, and the last reading."""

from dataclasses import dataclass

from jobs.telemetry import gpu_reading
from jobs.telemetry.gpu_reading import GpuReading
from jobs.telemetry.reports.reports import ReportSet


@dataclass(frozen=True, slots=True)
class GpuNow:
    """GPU of one worker."""

    reading: GpuReading
    measure: str  #: name of the activity that is known; "": none is
    activity: float  #: mean of the last minute, 0 to 1

    @property
    def troubles(self) -> list[str]:
        """Reasons for lower clocks, and errors, in words."""
        reasons = ", ".join(self.reading.throttling or ()).replace("_", " ")
        return ([f"throttled: {reasons}"] if reasons else []) + self.reading.errors


def of_worker(reports: ReportSet, incarnation: int) -> GpuNow | None:
    """Returns the GPU of a worker; None where it has none, or nothing of it is known."""
    one = reports.by_process(str(incarnation))
    reading = gpu_reading.of_details(one.reports[0].details) if one.reports else None
    if reading is None:
        return None
    kinds = {"sm": reading.sm_activity, "kernel": reading.kernel_activity}
    kind = next((kind for kind, share in kinds.items() if share is not None), "")
    activity = one.rate("millrace_device_active_seconds_total", kind=kind) if kind else 0.0
    measure = {"sm": "SMs active", "kernel": "Kernel running", "": ""}[kind]
    return GpuNow(reading, measure, min(1.0, activity))
