"""Readings as processes would report them."""

from collections.abc import Mapping
from typing import Any

from jobs.explain import Diagnosis, Facts, diagnose
from jobs.models.model import Limits, Model
from jobs.store.monitoring.observations import Observations
from jobs.telemetry import gpu_reading
from jobs.telemetry.gpu_reading import GpuReading
from jobs.telemetry.metrics import adapters as adapters  # defines its section
from jobs.telemetry.metrics.metrics import EDGES
from jobs.telemetry.reports.reports import ProcessKind, Report, ReportSet
from jobs.telemetry.reports.window import Series, WindowDelta

MODEL = Model("m", "1", "echo", target_ms=250, limits=Limits(max_batch=32))
M = {"model": "m@1"}
SECONDS = 60.0


class Process:
    """One report; its methods add to it, and give it back."""

    def __init__(self, kind: ProcessKind, name: str = "", seconds: float = SECONDS) -> None:
        self._kind, self._name, self._seconds = kind, name or f"{kind}_1", seconds
        self._counts: dict[Series, float] = {}
        self._gauges: dict[Series, float] = {}
        self._details: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"{self._kind} {[*self._gauges.items(), *self._counts.items()]}"

    def about(self, **details: Any) -> "Process":
        self._details |= details
        return self

    def count(self, metric: str, value: float, **labels: str) -> "Process":
        self._counts[_series(f"millrace_{metric}", labels)] = value
        return self

    def gauge(self, metric: str, value: float, **labels: str) -> "Process":
        self._gauges[_series(f"millrace_{metric}", labels)] = value
        return self

    def seen(self, histogram: str, value: float, times: float = 100, **labels: str) -> "Process":
        """A histogram that saw this value so many times."""
        name = f"millrace_{histogram}"
        top = next((str(float(top)) for top in EDGES[name] if value <= top), "+Inf")
        self._counts[_series(f"{name}_bucket", {**labels, "le": top})] = times
        self._counts[_series(f"{name}_count", labels)] = times
        self._counts[_series(f"{name}_sum", labels)] = value * times
        return self

    def status(self, **status: Any) -> "Process":
        """A worker's report of the model."""
        return self.about(models={MODEL.key: status})

    def report(self) -> Report:
        stretch = WindowDelta(self._seconds, self._counts, self._gauges)
        return Report(self._name, self._kind, 0.0, stretch, self._details)


def _series(name: str, labels: Mapping[str, str]) -> Series:
    return name, tuple(sorted((key.rstrip("_"), value) for key, value in labels.items()))


def api() -> Process:
    return Process("api")


def keeper() -> Process:
    return Process("keeper")


def worker(busy: float = 0.5, slots: float = 1.0, name: str = "1") -> Process:
    """One that has the model, and whose device is busy for this share of the time."""
    made = Process("worker", name).gauge("model_slots", slots, **M)
    return made.count("device_busy_seconds_total", busy * SECONDS, device="cpu")


def with_gpu(
    made: Process, activity: float | None = 0.7, kind: str = "sm", name: str = "H100", **more: Any
) -> Process:
    """The same on a GPU of this mean activity, of its SMs or kernels; more: of its last reading."""
    known: dict[str, Any] = {} if activity is None else {f"{kind}_activity": activity}
    reading = GpuReading(5.0, **known, **more)
    if activity:
        made.count("device_active_seconds_total", activity * SECONDS, device="cuda", kind=kind)
    return made.about(kind=name, device="cuda", **{gpu_reading.KEY: reading.as_json()})


def calls(
    late: float = 0.0, total: float = 100, stages: Mapping[str, float] | None = None
) -> Process:
    """An api whose calls were answered; late: the share that missed the target."""
    made = api().count("calls_total", total, outcome="succeeded", **M, class_="standard")
    made.count("call_target_total", total * (1 - late), met="true", **M)
    made.count("call_target_total", total * late, met="false", **M)
    for stage, mean_s in (stages or {"queue": 0.1, "engine": 0.1}).items():
        made.seen("call_stage_seconds", mean_s, total, stage=stage, **M)
    return made.seen("call_seconds", sum((stages or {"": 0.2}).values()), total, **M)


def launched(
    process: Process, count: float = 100, rows: float = 4, reason: str = "full"
) -> Process:
    process.count("launches_total", count, reason=reason, **M)
    return process.seen("launch_rows", rows, count, **M).seen("launch_seconds", 0.1, count, **M)


def facts(
    *processes: Process, seen: Observations | None = None, model: Model = MODEL, **more: Any
) -> Facts:
    """Of these and of a keeper that has nothing to say."""
    reports = [process.report() for process in (*processes, Process("keeper", "keeper_0"))]
    return Facts.from_reports(ReportSet(reports), [model], seen, **more)


def found(
    *processes: Process, seen: Observations | None = None, **more: Any
) -> dict[str, Diagnosis]:
    """By code."""
    return {one.code: one for one in diagnose(facts(*processes, seen=seen, **more))}
