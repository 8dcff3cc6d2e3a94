"""Watcher of the models file."""

import asyncio

from jobs.models.watcher import ModelsFile
from jobs.telemetry.metrics import metrics
from jobs.telemetry.metrics.gauge_table import GaugeTable

_POLL_S = 1.0


async def follow(file: ModelsFile) -> None:
    """Applies changes until cancelled.

    `file.models` may become another registry at any time: code that needs it twice keeps a
    reference.
    """
    targets = GaugeTable(metrics.TARGET_S)
    while True:
        await asyncio.sleep(_POLL_S)
        file.poll()
        targets.set({(model.key,): model.target_ms / 1000 for model in file.models})
