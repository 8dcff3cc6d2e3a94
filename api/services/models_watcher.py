"""Watcher of the models file."""

import asyncio
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

from jobs.models.registry import Registry
from jobs.models.watcher import ModelsFile
from jobs.telemetry.metrics import metrics
from jobs.telemetry.metrics.labels import GaugeTable

_POLL_S = 1.0


async def follow(file: ModelsFile) -> None:
    """Applies changes until cancelled.

    `file.models` may become another registry at any time: code that needs it twice keeps a
    reference.
    """
    targets = GaugeTable(metrics.TARGET_S)
    opened = None
    while True:
        if opened is not file.models:
            opened = file.models
            targets.set({(model.key,): model.answer_target_ms / 1000 for model in opened})
            await run_in_threadpool(_open_tokenizers, opened)
        await asyncio.sleep(_POLL_S)
        file.poll()


def _open_tokenizers(models: Registry) -> None:
    """Opens what sizes need, so that no call waits for it."""
    for model in models:
        with suppress(Exception):  # the first call is told why; the watcher goes on
            model.size("text", {})
