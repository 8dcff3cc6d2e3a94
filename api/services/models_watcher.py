"""The models file, followed while the process lives."""

import asyncio

from jobs.models.watcher import ModelsFile
from jobs.telemetry.metrics import metrics
from jobs.telemetry.metrics.gauge_table import GaugeTable

_LOOK_S = 1.0


async def follow(file: ModelsFile) -> None:
    """Takes its changes up. `file.models` may be another registry from one moment to the next: who
    needs it twice keeps it."""
    targets = GaugeTable(metrics.TARGET_S)
    while True:
        await asyncio.sleep(_LOOK_S)
        file.poll()
        targets.set({(model.key,): model.target_ms / 1000 for model in file.models})
