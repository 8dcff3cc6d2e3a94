"""Lock of a home: one process runs its servers."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.embedded.errors import EmbeddedError, HomeInUse


class HomeLock:
    """Right to run servers in a home; released when the process ends, however it ends."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "lock"
        self._fd: int | None = None

    def acquire(self) -> None:
        """Takes the lock. Raises HomeInUse, with the holder's pid, where it is taken."""
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 20).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise HomeInUse(
                f"{self.home} is in use by process {holder}. "
                "Stop that one, or name another folder with MILLRACE_HOME."
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Releases the lock, if it is held."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        try:
            self.home.mkdir(mode=0o711, parents=True, exist_ok=True)
            return os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise EmbeddedError(
                f"{self.path} can't be opened: {error.strerror}. Start as the user that owns "
                f"{self.home}, or name another folder with MILLRACE_HOME."
            ) from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock until it is left."""
        self.acquire()
        try:
            yield
        finally:
            self.release()
