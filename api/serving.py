"""Which models this process serves: what the models file said when it was last right."""

import asyncio
import logging
from pathlib import Path

from jobs import registry
from jobs.settings import SettingsError

_log = logging.getLogger(__name__)
_LOOK_S = 1.0


class Serving:
    """`models` may be another registry from one moment to the next: who needs it twice keeps it.

    Raises SettingsError where the file is wrong from the beginning.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen = self._stamp()
        self.models = registry.load(path)

    async def follow(self) -> None:
        """Takes changes of the file up, for as long as the process lives."""
        while self._path:
            await asyncio.sleep(_LOOK_S)
            self.refresh()

    def refresh(self) -> None:
        """Reads the file again if it changed. One that is wrong changes nothing."""
        seen = self._stamp()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.models = registry.load(self._path)
        except SettingsError as error:
            _log.error("the models file is wrong; what it said before goes on: %s", error)
        else:
            keys = ", ".join(model.key for model in self.models)
            _log.info("the models file has changed; it declares %s", keys)

    def _stamp(self) -> tuple[int, int, int] | None:
        """What changes with the file; None: there is none."""
        try:
            stat = self._path.stat() if self._path else None
        except OSError:
            return None
        return stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino)
