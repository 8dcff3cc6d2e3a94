"""Inputs of a placement: kinds of devices, and models with their demand."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of device that can be had."""

    name: str
    memory_gib: float
    price: float  #: of one device an hour
    most: int | None = None  #: devices of it; None: any number


@dataclass(frozen=True, slots=True)
class Demand:
    """Model, and the work that is asked of it."""

    model: str  #: name@version
    memory_gib: float  #: of one copy
    per_s: float  #: entries a second
    #: entries a second of a whole device, by kind; kinds that can't meet its target are left out
    rates: Mapping[str, float]

    def fits(self, kind: Kind) -> bool:
        """Returns True if a device of this kind can hold the model and meet its target."""
        return self.memory_gib <= kind.memory_gib and self.rates.get(kind.name, 0.0) > 0


@dataclass(frozen=True, slots=True)
class Point:
    """Launches of one size: a point of a throughput curve."""

    rows: int
    launch_ms: float
    per_s: float  #: entries a second


def rate_within(points: Iterable[Point], target_ms: float | None) -> float:
    """Returns the entries a second of the fastest launches that the target allows; 0: of none.

    A call that has just missed a launch waits for it and for its own: a launch may take half of the
    target. None: no target.
    """
    allowed_ms = float("inf") if target_ms is None else target_ms / 2
    return max((point.per_s for point in points if point.launch_ms <= allowed_ms), default=0.0)


def problems_of(demands: Sequence[Demand], kinds: Sequence[Kind]) -> list[str]:
    """Returns what no placement can solve: models that no kind can hold in time."""
    return [
        f"{demand.model} fits no kind of device: it needs {demand.memory_gib:g} GiB, and launches "
        f"within half of its target ({', '.join(kind.name for kind in kinds)})"
        for demand in demands
        if not any(demand.fits(kind) for kind in kinds)
    ]
