"""A second PostgreSQL that follows a first, and may take its place."""

from pathlib import Path
from urllib.parse import quote

from ops.embedded.account import Account
from ops.embedded.layout import DATABASE, PORT, USER, make_private_folder
from ops.embedded.postgres import EmbeddedPostgres
from tests.support.wait import PATIENCE_S


class Standby(EmbeddedPostgres):
    """Streams from `primary`, which runs."""

    def __init__(self, home: Path, primary: EmbeddedPostgres) -> None:
        super().__init__(home)
        self._primary = primary

    def _prepare(self, account: Account, binary: Path) -> None:
        make_private_folder(self.layout.data, account.uid, account.gid)
        source = f"host={self._primary.layout.run} port={PORT} user={USER}"
        command: list[str | Path] = [binary.with_name("pg_basebackup"), "-D", self.layout.data]
        command += ["-d", source, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        with self.log.open("ab") as output:
            made = account.launch(command, self.stop_signal, stdout=output)
            assert made.wait(PATIENCE_S) == 0, self.log.read_text()

    def _is_ready(self, pid: int) -> bool:
        lines = self._pid_file_lines()
        return len(lines) > 7 and lines[7].strip() in ("standby", "ready")

    def _create_database(self) -> None:
        """Does nothing: the primary's databases are there."""


def url_of_both(first: EmbeddedPostgres, second: EmbeddedPostgres) -> str:
    hosts = ",".join(quote(str(server.layout.run)) for server in (first, second))
    return (
        f"postgresql+psycopg://{USER}@/{DATABASE}?host={hosts}&port={PORT},{PORT}"
        "&target_session_attrs=read-write"
    )
