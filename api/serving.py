"""The models file, followed while the process lives."""

import asyncio

from jobs.models_file import ModelsFile

_LOOK_S = 1.0


async def follow(file: ModelsFile) -> None:
    """Takes its changes up. `file.models` may be another registry from one moment to the next: who
    needs it twice keeps it."""
    while True:
        await asyncio.sleep(_LOOK_S)
        file.poll()
