"""Calls that were never made."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.bench.load.open_loop import Calls


def made(
    due_s: Sequence[float], latency_s: Sequence[float], status: Sequence[int], **columns: Any
) -> Calls:
    """Started at 1000 s; each left when it was due, and is right where its status is 200."""
    due, ok = np.array(due_s, dtype=float), np.array(status) == 200
    none, empty = np.full(len(due), np.nan), np.full(len(due), "")
    rows = {
        "due_s": due, "sent_s": due, "ended_s": due + latency_s, "status": np.array(status),
        "batch_size": none, "engine_ms": none, "predicted_ms": none, "padding": none,
        "units": none, "flush": empty, "degraded": ~ok, "right": ok, "code": empty,
        "job": empty,
    }  # fmt: skip
    rows |= {name: np.array(values) for name, values in columns.items()}
    return Calls(started_s=1000.0, cpu_s=0.0, **rows)
