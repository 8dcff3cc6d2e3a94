"""Capacity of a slot, and the usual formula for sizing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from jobs.calls.lanes import bucket_of
from jobs.models.model import Model
from workers.scheduler.cost import LaunchSize
from workers.scheduler.snapshot import LaneView, Rules
from workers.simulation.costs import LaunchTimes

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Capacity:
    """Means over the calls of a trace, in full launches of their own lanes."""

    launch_s: float
    rows: float
    row_s: float  #: launch_s over rows, call by call
    slots: int  #: launches at a time of one replica

    @classmethod
    def of(cls, model: Model, times: LaunchTimes, sizes: Sequence[int]) -> "Capacity":
        """Computes it for calls of these sizes."""
        rules, counts = Rules.from_model(model), Counter(sizes)
        launch_s = rows = row_s = 0.0
        for size, count in counts.items():
            bucket = bucket_of(size, model.buckets)
            full = rules.full_rows(LaneView("", bucket, items=1, items_units=size))
            work = LaunchSize.alike(full, bucket if rules.pads else size, bucket)
            share, took_s = count / len(sizes), times.mean_s(work)
            launch_s += share * took_s
            rows += share * full
            row_s += share * took_s / full
        return cls(launch_s, rows, row_s, model.limits.in_flight)

    @property
    def per_s(self) -> float:
        """Calls a second of one replica that only runs full launches."""
        return self.slots / self.row_s

    def replicas(self, rate_per_s: float, utilisation: float) -> int:
        """ceil(rate x time per item / batch / utilisation)."""
        return max(1, ceil(rate_per_s / self.per_s / utilisation - _ROUNDING))

    def rounded_first(self, rate_per_s: float, utilisation: float) -> int:
        """ceil(ceil(rate x time per item / batch) / utilisation): whole busy devices first, which
        asks for up to one over the utilisation more."""
        busy = ceil(rate_per_s / self.per_s - _ROUNDING)
        return max(1, ceil(busy / utilisation - _ROUNDING))
