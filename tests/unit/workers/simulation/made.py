"""Arrivals and models for simulations."""

import random
from dataclasses import replace

from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model

BATCHSTRING = replace(SAMPLES.resolve("batchstring"), target_ms=200)  # up to 100 a launch


def poisson(
    rate_per_s: float, lasts_s: float, seed: int = 1, size: int = 1
) -> list[tuple[float, int]]:
    draw, at_s, found = random.Random(seed), 0.0, []
    while (at_s := at_s + draw.expovariate(rate_per_s)) < lasts_s:
        found.append((at_s, size))
    return found


def batches_of(rows: int, **changes: int) -> Model:
    """batchstring with so many rows a launch."""
    limits = replace(BATCHSTRING.limits, max_batch=rows)
    return replace(BATCHSTRING, limits=limits, **changes)
