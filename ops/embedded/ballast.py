"""Space that is kept for the day when the disk is full."""

import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 64 << 20
_SHARE = 16  # of the disk: on a small one the ballast is small
_SPARE = 4  # times its own size must be free before it is made

log = logging.getLogger("millrace.embedded")


class Ballast:
    """File without content of use, removed so that PostgreSQL can start on a full disk.

    A PostgreSQL that couldn't write its log ends, and needs some space to recover: the ballast's.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ballast"

    def keep(self) -> None:
        """Makes the file where it is missing or empty and there is space enough."""
        with suppress(OSError):
            if self.path.exists() and self.path.stat().st_size:
                return
            disk = shutil.disk_usage(self.path.parent)
            size = min(MOST_BYTES, disk.total // _SHARE)
            if disk.free >= _SPARE * size:
                self._make(size)

    def _make(self, size: int) -> None:
        """Makes it under another name first: a process killed meanwhile leaves no part of it."""
        new = self.path.with_suffix(".new")
        fd = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError:
            new.unlink()
            raise
        finally:
            os.close(fd)
        new.rename(self.path)

    def release(self) -> bool:
        """Removes the file. Returns False where there was none, or its disk has space enough."""
        try:
            size = self.path.stat().st_size
            if shutil.disk_usage(self.path.parent).free >= size:
                return False
            self.path.unlink()
        except OSError:
            return False
        log.warning("the disk of %s is full: %s was removed", self.path.parent, self.path)
        return True
