"""Workers as they report themselves: what they have in hand of a model, and their GPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from jobs.models.model import Limits
from jobs.telemetry import gpu_reading
from jobs.telemetry.gpu_reading import GpuReading
from jobs.telemetry.reports.reports import Report, ReportSet


@dataclass(frozen=True, slots=True)
class Hand:
    """Work of a model in one worker."""

    worker: str  #: its incarnation
    slices: float = 0.0  #: leased by it
    items: int = 0  #: in its launches in flight
    launched_s: float = 0.0  #: age of the oldest of them; 0: none
    alone_s: float | None = None  #: predicted launch of the shortest input alone; None: not known
    most_rows: int = 0  #: entries of its largest launches; 0: not known


def hands(workers: Iterable[Report], key: str) -> tuple[Hand, ...]:
    """Returns what each worker has that serves a model, those with the most slices first."""
    found = [_hand(report, key) for report in workers if _slots(report, key)]
    return tuple(sorted(found, key=lambda hand: -hand.slices))


def alone_s(hands: Iterable[Hand]) -> float:
    """Returns the predicted launch of one input alone, in the fastest worker; 0: not known."""
    return min((hand.alone_s for hand in hands if hand.alone_s is not None), default=0.0)


def with_found_rows(limits: Limits, hands: Iterable[Hand]) -> Limits:
    """Returns the limits of an entry, with the rows that workers found where it leaves them out."""
    found = max((hand.most_rows for hand in hands), default=0)
    return limits if limits.max_batch or not found else replace(limits, max_batch=found)


def _slots(report: Report, key: str) -> float:
    return ReportSet([report]).gauge("millrace_model_slots", model=key) or 0.0


def _hand(report: Report, key: str) -> Hand:
    status = report.details.get("models", {}).get(key, {})
    launches = [one for one in status.get("launches", ()) if one["items"]]
    since = min((one["since"] for one in launches), default=report.at)
    return Hand(
        worker=report.name,
        slices=ReportSet([report]).gauge("millrace_slices_in_hand", model=key) or 0.0,
        items=sum(one["items"] for one in launches),
        launched_s=max(0.0, report.at - since),
        alone_s=min(map(_alone_s, status.get("profile", {}).values()), default=None),
        most_rows=max(map(_full_rows, status.get("profile", {}).values()), default=0),
    )


def _full_rows(times: Mapping[str, float | None]) -> int:
    return int(times.get("full_rows") or 0)


def _alone_s(times: dict[str, float | None]) -> float:
    """Returns the launch of one input where nothing else runs, else of one input."""
    alone_ms = times.get("alone_ms")
    return ((times.get("one_ms") or 0.0) if alone_ms is None else alone_ms) / 1000


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """GPU of one worker over the last minute."""

    worker: str  #: its incarnation
    device: str  #: product name, or torch's name of it
    models: frozenset[str]  #: that the worker serves, by name@version
    reading: GpuReading  #: last one
    busy: float  #: share of the time with a launch, 0 to 1
    #: the same, or that of the last ten seconds if it is more: its work may have begun since
    busy_lately: float
    activity: float | None = None  #: of its SMs, else of its kernels, 0 to 1; None: not known
    of_sms: bool = False  #: True: that of its SMs
    used: float = 0.0  #: activity of its SMs or its kernels, whichever is more, 0 to 1
    throttled: Mapping[str, float] = field(default_factory=dict)  #: share of the time by reason


def gpus(workers: Iterable[Report]) -> tuple[GpuFacts, ...]:
    """Returns the GPUs of all workers that tell anything of theirs."""
    found = ((report, gpu_reading.of_details(report.details)) for report in workers)
    return tuple(_gpu(report, reading) for report, reading in found if reading)


def _gpu(report: Report, reading: GpuReading) -> GpuFacts:
    its = ReportSet([report])
    busy, active_s = "millrace_device_busy_seconds_total", "millrace_device_active_seconds_total"
    of_sms = reading.sm_activity is not None
    models = its.gauge_by("millrace_model_slots", "model")
    known = of_sms or reading.kernel_activity is not None
    active = its.rate_by(active_s, "kind")
    return GpuFacts(
        worker=report.name,
        device=str(report.details.get("kind") or report.details.get("device", "")),
        models=frozenset(key for key, slots in models.items() if slots),
        reading=reading,
        busy=min(1.0, its.rate(busy)),
        busy_lately=min(1.0, max(its.rate(busy), its.recent().rate(busy))),
        activity=min(1.0, active.get("sm" if of_sms else "kernel", 0.0)) if known else None,
        of_sms=of_sms,
        used=max(active.values(), default=0.0),
        throttled=its.rate_by("millrace_device_throttled_seconds_total", "reason"),
    )
