"""Durations in a simulation: of launches on the device, and of everything around them."""

from dataclasses import dataclass
from random import Random

from jobs.calls.lanes import bucket_of
from jobs.models.model import Model
from workers.device.warmup.measure import Measured
from workers.scheduler.cost import LaunchSize
from workers.scheduler.latency import LatencyModel
from workers.scheduler.snapshot import LaneView, Rules

_ROUNDS = 2  # of the sweep, as in workers/device/warmup/measure.py


@dataclass(frozen=True, slots=True)
class LaunchTimes:
    """True duration of a launch: fixed_s + row_s rows + unit_s units + square_s Σ size², s, times a
    ratio drawn from `ratios`."""

    fixed_s: float
    row_s: float = 0.0
    unit_s: float = 0.0
    square_s: float = 0.0
    ratios: tuple[float, ...] = (1.0,)  #: measured over predicted
    slowdown: float = 0.0  #: share that a launch takes longer beside another on its device
    price: float = 1.0  #: of the device, for the same time

    @classmethod
    def fitted(cls, sweep: Measured) -> "LaunchTimes":
        """Fits the durations to measured launches, with a worker's own latency model."""
        latency = LatencyModel()
        latency.seed(sweep)
        fixed_s = latency.predict(LaunchSize(0, 0, 0))
        row_s, unit_s, square_s = (
            latency.predict(LaunchSize(*one)) - fixed_s for one in ((1, 0, 0), (0, 1, 0), (0, 0, 1))
        )
        ratios = tuple(seconds / max(latency.predict(work), 1e-9) for work, seconds in sweep)
        return cls(fixed_s, row_s, unit_s, square_s, ratios or (1.0,))

    def mean_s(self, work: LaunchSize) -> float:
        """Returns the seconds of a launch, without jitter."""
        sized_s = self.unit_s * work.units + self.square_s * work.squares
        return self.fixed_s + self.row_s * work.rows + sized_s

    def draw_s(self, work: LaunchSize, random: Random) -> float:
        """Draws the seconds of one launch."""
        return self.mean_s(work) * random.choice(self.ratios)

    def faster(self, speed: float) -> "LaunchTimes":
        """Returns the durations on a device that is `speed` times as fast."""
        return LaunchTimes(
            self.fixed_s / speed,
            self.row_s / speed,
            self.unit_s / speed,
            self.square_s / speed,
            self.ratios,
            self.slowdown,
            self.price,
        )

    def sweep(self, model: Model, random: Random) -> list[tuple[LaunchSize, float]]:
        """Returns what a worker's warm-up would measure: one row, half of a launch and a whole one
        of each bucket, several at a time."""
        beside = 1 + self.slowdown * (model.limits.in_flight - 1)
        rules, measured = Rules.from_model(model), list[tuple[LaunchSize, float]]()
        for size in model.size_buckets or (1,):
            bucket = bucket_of(size, model.buckets)
            full = rules.full_rows(LaneView("", bucket, items=1, items_units=size))
            for rows in sorted({1, (full + 1) // 2, full}):
                work = LaunchSize.alike(rows, size, bucket)
                for _ in range(_ROUNDS * model.limits.in_flight):
                    measured.append((work, self.draw_s(work, random) * beside))
        return measured


@dataclass(frozen=True, slots=True)
class Overheads:
    """Durations around the launches; the defaults are those of a call to an idle `echo` on one
    machine."""

    call_s: float = 0.001  #: HTTP and Redis, half on the way in, half on the way back
    #: a third each for looking, for taking and closing, and for delivering
    launch_s: float = 0.0006


NO_OVERHEADS = Overheads(0.0, 0.0)
