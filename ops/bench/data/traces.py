"""Arrivals at a service of conversations: those of Azure's, else made ones of the same rates."""

from math import exp, sqrt

import numpy as np

from ops.bench.data.folder import real_file
from ops.simulation import traces
from ops.simulation.traces import Arrival

_HOUR_S, _HOUR_PER_S = 3500.0, 5.53
_BUSIEST_S, _BUSIEST_PER_S = 300.0, 7.91
_STEP_S = 1.0
#: The rate's logarithm wanders: (standard deviation, seconds until it forgets) of each part.
_WANDERS = ((0.2, 600.0), (0.14, 4.0))


def hour() -> list[Arrival]:
    """Arrivals of almost an hour, whose rate rises and falls in minutes and in seconds."""
    if path := real_file("AzureLLMInferenceTrace_conv.csv"):
        return traces.read(path)
    draw = np.random.default_rng(2)
    steps = int(_HOUR_S / _STEP_S)
    log = sum(_wander(draw, steps, *part) for part in _WANDERS)
    rates = np.exp(log)
    return _arrivals(draw, _HOUR_PER_S * rates / rates.mean())


def busiest() -> list[Arrival]:
    """Arrivals of five busy minutes of a constant rate."""
    if path := real_file("azure23_conv_busiest300s.csv"):
        return traces.read(path)
    steps = int(_BUSIEST_S / _STEP_S)
    return _arrivals(np.random.default_rng(1), np.full(steps, _BUSIEST_PER_S))


def _wander(
    draw: np.random.Generator, steps: int, deviation: float, memory_s: float
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Returns a first-order autoregressive process."""
    kept = exp(-_STEP_S / memory_s)
    noise = draw.normal(0, deviation, steps)
    found = np.empty(steps)
    value = noise[0]
    for n in range(steps):
        value = kept * value + sqrt(1 - kept**2) * noise[n]
        found[n] = value
    return found


def _arrivals(
    draw: np.random.Generator, per_s: "np.ndarray[tuple[int], np.dtype[np.float64]]"
) -> list[Arrival]:
    """Returns arrivals of a Poisson process with these rates, second by second."""
    counts = draw.poisson(per_s * _STEP_S)
    starts = np.repeat(np.arange(len(counts)) * _STEP_S, counts)
    times = np.sort(starts + draw.uniform(0, _STEP_S, len(starts)))
    return [(float(at_s - times[0]), 1) for at_s in times]
