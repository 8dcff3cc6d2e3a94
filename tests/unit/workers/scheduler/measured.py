"""Latency models that have seen enough to know their numbers."""

from workers.scheduler.cost import LaunchSize
from workers.scheduler.latency import LatencyModel


def measured(c0: float, c1: float, *, by_size: bool = False) -> LatencyModel:
    """A model of a device whose launches take exactly c0 + c1 x seconds, x being its rows, or
    their sizes together."""
    latency = LatencyModel()
    for _ in range(100):
        for rows, size in ((1, 1), (100, 1), (1, 100), (100, 100), (10, 50)):
            work = LaunchSize.alike(rows, size)
            latency.observe(work, c0 + c1 * (work.units if by_size else work.rows))
    return latency
