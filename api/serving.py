"""Which models this process serves: what the models file said when it was last right."""

import asyncio
import logging
from pathlib import Path

from jobs.models_file import ModelsFile
from jobs.registry import Registry

_log = logging.getLogger(__name__)
_LOOK_S = 1.0


class Serving:
    """`models` may be another registry from one moment to the next: who needs it twice keeps it.

    Raises SettingsError where the file is wrong from the beginning.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = ModelsFile(path)

    @property
    def models(self) -> Registry:
        return self._file.models

    async def follow(self) -> None:
        """Takes changes of the file up, for as long as the process lives."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.refresh()

    def refresh(self) -> None:
        """Reads the file again if it changed. One that is wrong changes nothing."""
        if self._file.poll():
            keys = ", ".join(model.key for model in self.models)
            _log.info("the models file has changed; it declares %s", keys)
