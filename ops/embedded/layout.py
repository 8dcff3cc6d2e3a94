"""Paths in the home of the embedded servers."""

import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ops.embedded.errors import EmbeddedError

PORT = 5432  # only names the socket file
POSTGRES_SOCKET = f".s.PGSQL.{PORT}"
REDIS_SOCKET = "redis.sock"
USER = DATABASE = "millrace"

_MAX_SOCKET_BYTES = 107  # sun_path, less its final zero
# libpq splits a host at commas, Redis' configuration at blanks.
_PLAIN = re.compile(r"[A-Za-z0-9_./+=-]+")


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths under a home, which is absolute and without links."""

    home: Path

    @classmethod
    def of(cls, home: Path) -> "Layout":
        """Resolves a home."""
        return cls(Path(home).expanduser().resolve())

    @property
    def tag(self) -> str:
        """Word in the title of every process of this home's servers."""
        return "millrace-" + hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]

    @property
    def data(self) -> Path:
        """Data folder of PostgreSQL."""
        return self.home / "postgres"

    @property
    def logs(self) -> Path:
        """Folder of the logs."""
        return self.home / "logs"

    @property
    def run(self) -> Path:
        """Folder of the sockets: in the home, or where that path is too long, a short one."""
        for folder in (self.home / "run", Path(tempfile.gettempdir(), self.tag)):
            longest = os.fsencode(folder / POSTGRES_SOCKET)
            if len(longest) <= _MAX_SOCKET_BYTES and _PLAIN.fullmatch(str(folder)):
                return folder
        raise EmbeddedError(
            f"{folder} is too long or too odd for a socket. Set TMPDIR to a short, plain path."
        )

    def postgres_url(self, role: str = USER) -> str:
        """URL for SQLAlchemy, which logs in as one of the roles that the migrations create.

        It has the port, since libpq would else read PGPORT.
        """
        folder = quote(str(self.run))
        return f"postgresql+psycopg://{role}@/{DATABASE}?host={folder}&port={PORT}"

    @property
    def redis_socket(self) -> Path:
        """Socket of Redis."""
        return self.run / REDIS_SOCKET

    @property
    def redis_url(self) -> str:
        """URL for redis-py."""
        return f"unix://{self.redis_socket}?db=0"


def make_private_folder(path: Path, uid: int, gid: int) -> None:
    """Makes a folder that only this user can enter; refuses another user's."""
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (uid, os.geteuid()):
        raise EmbeddedError(
            f"{path} belongs to user id {status.st_uid}, not {uid}, or is no folder. "
            "Move it away, or start as its owner."
        )
    if status.st_uid != uid:
        os.chown(path, uid, gid)
    path.chmod(0o700)
