"""Latency models that have seen enough to know their two numbers."""

from workers.scheduler.latency import LatencyModel


def measured(c0: float, c1: float) -> LatencyModel:
    """A model of a device whose launches take exactly c0 + c1 x seconds."""
    latency = LatencyModel()
    for _ in range(100):
        for x in (1, 100):
            latency.observe(x, c0 + c1 * x)
    return latency
