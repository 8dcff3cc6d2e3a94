"""Figures of adapters in the slots of workers, over the last minute."""

from dataclasses import dataclass

from jobs.telemetry.reports.reports import ReportSet


@dataclass(frozen=True, slots=True)
class AdapterLoads:
    """Loads of the adapters of a model, over all its workers."""

    loads: float = 0.0  #: that succeeded
    load_s: float = 0.0  #: mean duration
    evictions: float = 0.0  #: adapters that left their slot to another
    slots: float = 0.0  #: slots that hold an adapter, of the worker with most

    @classmethod
    def from_reports(cls, reports: ReportSet, key: str) -> "AdapterLoads":
        """Reads the figures of one model; all are 0 where it has no adapters."""
        return cls(
            loads=reports.increase("millrace_adapter_loads_total", model=key, outcome="ready"),
            load_s=reports.mean("millrace_adapter_load_seconds", model=key) or 0.0,
            evictions=reports.increase("millrace_adapter_evictions_total", model=key),
            slots=reports.gauge("millrace_adapter_slots_used", model=key) or 0.0,
        )
