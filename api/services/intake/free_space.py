"""Free space on the disks that jobs and files are stored on, as an api process knows it."""

import asyncio
import logging
import sys

from starlette.concurrency import run_in_threadpool

from jobs.errors import InsufficientStorage
from jobs.intake.free_space import DiskFloor, below_floor
from jobs.settings import Settings

_EVERY_S = 1.0

_log = logging.getLogger(__name__)


class FreeSpace:
    """Room on the disks that this api's clients fill, above the floor of each."""

    def __init__(self, settings: Settings) -> None:
        self._floor = DiskFloor.from_settings(settings)
        self._room = sys.maxsize  # bytes, as of the latest look, without what came in since

    @property
    def refusal(self) -> InsufficientStorage | None:
        """Error of a request to store more; None while the disks have space enough."""
        return below_floor() if self._room < 0 else None

    def spend(self, size: int) -> None:
        """Counts bytes that are about to be written. Raises InsufficientStorage."""
        self._room -= size
        if self._room < 0:
            raise below_floor()

    async def watch(self) -> None:
        """Looks at the disks every second; a file system that hangs holds up nothing else."""
        while self._floor.floor:
            room = await run_in_threadpool(self._floor.room)
            if (room < 0) != (self._room < 0):
                message = "there is space enough again: jobs and files are taken"
                _log.warning("%s", below_floor().detail if room < 0 else message)
            self._room = room
            await asyncio.sleep(_EVERY_S)
