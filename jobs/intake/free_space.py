"""Free space on the disks that intake writes to: of the home, the file store and the spool."""

import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jobs.blobs.store import parse
from jobs.errors import InsufficientStorage
from jobs.settings import Settings

LOOK_BYTES = 4 << 20  #: Bytes to write between two looks.
_RETRY_AFTER_S = 30.0
_MESSAGE = (
    "a disk of the platform has too little free space: what is left is kept for the work that is "
    "here (MILLRACE_MIN_FREE_MB). Delete jobs or files, or enlarge the disk"
)


@dataclass(frozen=True, slots=True)
class DiskFloor:
    """Free space that intake leaves on each disk, or half of a smaller disk."""

    folders: tuple[Path, ...]  #: one or more of each disk
    floor: int  #: bytes; 0: none

    @classmethod
    def from_settings(cls, settings: Settings) -> "DiskFloor":
        """Returns the floor of the home, the file store and the spool."""
        temporary = tempfile.gettempdir()
        return _disk_floor(settings.files, settings.home, temporary, settings.min_free_mb)

    def room(self) -> int:
        """Returns the bytes that may be written before the first disk reaches its floor."""
        if not self.floor:
            return sys.maxsize
        disks = [shutil.disk_usage(folder) for folder in self.folders if folder.exists()]
        rooms = (disk.free - min(self.floor, disk.total // 2) for disk in disks)
        return min(rooms, default=sys.maxsize)

    def check(self, more: int = 0) -> None:
        """Raises InsufficientStorage where a disk has no room for so many more bytes."""
        if self.room() < more:
            raise below_floor()


@lru_cache(16)  # each submission has one
def _disk_floor(files: str, home: Path, temporary: str, min_free_mb: int) -> DiskFloor:
    store = parse(files)
    local = (store,) if isinstance(store, Path) else ()
    return DiskFloor((home, Path(temporary), *local), min_free_mb << 20)


def below_floor() -> InsufficientStorage:
    """Returns the error of a request to store more than there is room for."""
    return InsufficientStorage(_MESSAGE, retry_after_s=_RETRY_AFTER_S)
