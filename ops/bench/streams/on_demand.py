"""Streams of a model that is loaded on demand, while the worker that has it, or its child, is
killed: another one loads the model, and the streams go on there.

One worker holds the model most of the time, so each fault takes the model away from all streams at
once. They wait, with comments, as long as somebody loads it.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from ops.bench.streams.faults import NOTHING_LOST, Fault, measure_faults
from ops.bench.streams.injection import Injection
from ops.bench.streams.target import ADAPTERS, streaming_fleet, tiny_model

_PREFIX = "on_demand_"
ASKED = tuple(_PREFIX + limit for limit in (*NOTHING_LOST, "kills >= 15", "child_crashs >= 15"))
_FAULTS = (
    Fault("kill", Injection.kill, 15, 4.0),
    Fault("child_crash", Injection.crash_child, 15, 4.0),
)


def measure(report: Report, scale: Scale) -> None:
    """Measures two minutes of faults, one every 4 s once the model is ready somewhere."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        model = replace(tiny_model(Path(folder), adapters=ADAPTERS), on_demand=True)
        with streaming_fleet(model) as fleet:
            measure_faults(report, scale, fleet, _FAULTS, workers=1, prefix=_PREFIX)
