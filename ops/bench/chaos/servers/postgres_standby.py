"""A second PostgreSQL that follows a first, and may take its place."""

from pathlib import Path
from urllib.parse import quote

from ops.embedded.account import Account
from ops.embedded.errors import EmbeddedError
from ops.embedded.layout import DATABASE, PORT, USER, make_private_folder
from ops.embedded.postgres import EmbeddedPostgres
from ops.processes.children import Started

_COPIED_WITHIN_S = 120.0


class Standby(EmbeddedPostgres):
    """Streams from a primary, which runs."""

    def __init__(self, home: Path, primary: EmbeddedPostgres, proxy: int | None = None) -> None:
        """proxy: port of one that it reaches the primary through; None: it uses the socket."""
        super().__init__(home)
        host, port = ("127.0.0.1", proxy) if proxy else (primary.layout.run, PORT)
        self._source = f"host={host} port={port} user={USER}"

    def copy(self) -> Started:
        """Starts to copy the primary's data; `launch` follows, once that has ended with 0."""
        binary = self.binary()
        return self._copy(self._make_folders(binary), binary)

    def is_ready(self) -> bool:
        """Returns True if the launched server takes connections."""
        return self.process is not None and self._is_ready(self.process.pid)

    def _copy(self, account: Account, binary: Path) -> Started:
        make_private_folder(self.layout.data, account.uid, account.gid)
        command: list[str | Path] = [binary.with_name("pg_basebackup"), "-D", self.layout.data]
        command += ["-d", self._source, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        return self._start_process(account, command)

    def _prepare(self, account: Account, binary: Path) -> None:
        if not self.layout.data.exists() and self._copy(account, binary).wait(_COPIED_WITHIN_S):
            raise EmbeddedError(f"The primary can't be copied: {self.log.read_text()}")

    def _is_ready(self, pid: int) -> bool:
        lines = self._pid_file_lines()
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() in ("standby", "ready")

    def _create_database(self) -> None:
        """Does nothing: the primary's databases are there."""


def url_of_both(first: EmbeddedPostgres, second: EmbeddedPostgres) -> str:
    """Returns the URL that leads to the one that takes writes."""
    first_run, second_run = (quote(str(server.layout.run)) for server in (first, second))
    return url_of_primary((first_run, PORT), (second_run, PORT))


def url_of_primary(*addresses: tuple[str, int]) -> str:
    """Returns the URL that leads to the one of these (host, port) that takes writes."""
    hosts, ports = zip(*addresses, strict=True)
    return (
        f"postgresql+psycopg://{USER}@/{DATABASE}?host={','.join(hosts)}"
        f"&port={','.join(map(str, ports))}&target_session_attrs=read-write"
    )
