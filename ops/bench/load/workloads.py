"""Calls that benchmarks make: models, texts, and rates in an open or a closed loop."""

import json
from collections.abc import Sequence
from typing import Any

from jobs import clock
from ops.bench.load.open_loop import Load, driver
from ops.supervisor.platform import Platform

#: Upper-cased they are the outputs of `batchstring`.
TEXTS = [f"text {n} for batchstring" for n in range(500)]

PEAK_TARGET_MS = 60_000  # of models whose peak is measured: no call is refused
_PEAK_IN_FLIGHT = 128
_MAX_PER_S = 2000  # calls of a closed loop


def infer(
    platform: Platform,
    model: str,
    inputs: Sequence[Any],
    due_s: Sequence[float],
    outputs: Sequence[Any] | None = None,
    keys: Sequence[str] = (),
    max_in_flight: int = 0,
) -> Load:
    """Calls of one model through POST /infer."""
    bodies = [json.dumps({"model": model, "input": value}) for value in inputs]
    return Load(f"{platform.url}/infer", due_s, bodies, outputs, keys, max_in_flight)


def batchstring(platform: Platform, due_s: Sequence[float], keys: Sequence[str] = ()) -> Load:
    """Calls of `batchstring`. keys: API keys, taken in turn; empty: none."""
    texts = [TEXTS[n % len(TEXTS)] for n in range(max(len(TEXTS), len(keys)))]
    each = [keys[n % len(keys)] for n in range(len(texts))] if keys else ()
    return infer(platform, "batchstring", texts, due_s, [text.upper() for text in texts], each)


def peak_per_s(
    platform: Platform,
    model: str,
    inputs: Sequence[str],
    warm_up_s: float,
    seconds: float,
    keys: Sequence[str] = (),
) -> float:
    """Calls a second that a model answers while 128 of them always wait or run."""
    due_s = [0.0] * int(_MAX_PER_S * (warm_up_s + seconds))
    load = infer(platform, model, inputs, due_s, keys=keys, max_in_flight=_PEAK_IN_FLIGHT)
    with driver(load) as running:
        running.go()
        clock.sleep(warm_up_s + seconds)
        running.stop()
        calls = running.calls()
    within = (calls.ended_s >= warm_up_s) & (calls.ended_s < warm_up_s + seconds)
    return float((calls.right & within).sum()) / seconds
