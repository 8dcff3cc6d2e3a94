"""Free space on the disks that jobs and files are stored on."""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fastapi.concurrency import run_in_threadpool

from jobs.blobs.store import parse
from jobs.errors import InsufficientStorage
from jobs.settings import Settings

_EVERY_S = 1.0
_RETRY_AFTER_S = 30.0

_log = logging.getLogger(__name__)


class FreeSpace:
    """Watch on the folders that this api's clients fill: the home, the file store, the spool."""

    def __init__(self, settings: Settings) -> None:
        self._floor = settings.min_free_mb << 20
        store = parse(settings.files)
        local = [store] if isinstance(store, Path) else []
        self._folders = [settings.home, Path(tempfile.gettempdir()), *local]
        self._low = ""

    @property
    def refusal(self) -> InsufficientStorage | None:
        """Error of a request to store more; None while the disks have space enough."""
        return InsufficientStorage(self._low, retry_after_s=_RETRY_AFTER_S) if self._low else None

    async def watch(self) -> None:
        """Looks at the disks every second; a file system that hangs holds up nothing else."""
        while self._floor:
            low = await run_in_threadpool(_least, self._folders, self._floor)
            if bool(low) != bool(self._low):
                _log.warning("%s", low or "there is space enough again: jobs and files are taken")
            self._low = low
            await asyncio.sleep(_EVERY_S)


def _least(folders: Sequence[Path], floor: int) -> str:
    """Says which disk has less free than the floor, or than half of it all; "" where none has."""
    for folder in folders:
        if folder.exists() and (disk := shutil.disk_usage(folder)).free < min(
            floor, disk.total // 2
        ):
            return (
                f"{disk.free >> 20:,} MiB are free on a disk of the platform; what is "
                "left is kept for the work that is here (MILLRACE_MIN_FREE_MB). Delete jobs or "
                "files, or enlarge the disk"
            )
    return ""
