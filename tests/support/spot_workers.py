"""`millrace worker` on machines that may be reclaimed, beside a running platform."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text

from ops.supervisor.platform import Platform
from tests.support.platforms import transaction
from tests.support.wait import eventually

NOTICE_S = 30.0


@dataclass
class SpotWorker:
    """One worker with its supervisor: a machine."""

    platform: Platform
    process: "subprocess.Popen[bytes]"
    incarnation: int
    file: Path  #: that is its notice

    @property
    def row(self) -> Any:
        query = "SELECT state, name, reclaimed_by, died FROM workers WHERE incarnation = :id"
        with transaction(self.platform) as tx:
            return tx.execute(text(query), {"id": self.incarnation}).one()

    @property
    def pid(self) -> int:
        return int(self.row.name.rpartition(":")[2])

    def reclaim(self) -> None:
        """Gives notice by the file, as an agent of the machine does."""
        self.file.touch()

    def vanish(self) -> None:
        """Takes the machine away without notice: supervisor and worker at once."""
        pid = self.pid
        os.kill(self.process.pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)


@contextmanager
def spot_worker(platform: Platform, folder: Path, **settings: Any) -> Iterator[SpotWorker]:
    """Runs one, from the time when it is ready on."""
    file = folder / "reclaimed"
    given = {"spot_notice_s": NOTICE_S, "spot_file": file, "price": 0.3, **settings}
    environ = os.environ | platform.settings.evolve(metrics_port=0, **given).environment()
    command = [sys.executable, "-m", "ops", "worker"]
    before = _latest(platform)
    process = subprocess.Popen(command, env=environ, start_new_session=True)
    try:
        incarnation = eventually(lambda: _ready_after(platform, before))
        yield SpotWorker(platform, process, incarnation, file)
    finally:
        process.terminate()
        process.wait()


def _latest(platform: Platform) -> int:
    with transaction(platform) as tx:
        return int(tx.scalar(text("SELECT coalesce(max(incarnation), 0) FROM workers")) or 0)


def _ready_after(platform: Platform, before: int) -> int | None:
    platform.poll()
    query = "SELECT incarnation FROM workers WHERE incarnation > :n AND state = 'ready'"
    query += " AND spot_notice_s > 0"
    with transaction(platform) as tx:
        return tx.scalar(text(query), {"n": before})
