"""PostgreSQL whose place a standby takes, and Redis behind three Sentinels."""

import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from signal import SIGHUP, SIGKILL, SIGSTOP, Signals

from jobs import clock
from ops.bench.chaos.servers.postgres_standby import Standby
from ops.bench.chaos.servers.sentinel_group import SentinelGroup
from ops.embedded.layout import POSTGRES_SOCKET, Layout
from ops.embedded.postgres import EmbeddedPostgres
from ops.embedded.servers import EmbeddedServers

_SENTINELS = 3
_WAIT_FOR_STANDBY = "synchronous_standby_names = '*'\n"


class ReplicatedServers(EmbeddedServers):
    """Servers of a home, with room for a second PostgreSQL, which is there when a fault needs it.

    The roles of the two rooms change with each promotion; commits wait for a standby only where
    `synchronize` says so."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, redis=False)
        self.group = SentinelGroup(self.home.with_name("redis"), _SENTINELS)
        self._homes = self.home, self.home / "second"
        self._former: EmbeddedPostgres | None = None  # frozen, in the place of the next standby
        self._fence_at_s = 0.0

    @property
    def sockets(self) -> list[str]:
        """Sockets of PostgreSQL in the two rooms."""
        return [str(Layout.of(home).run / POSTGRES_SOCKET) for home in self._homes]

    @property
    def room(self) -> int:
        """Index of the primary's room."""
        return self._homes.index(self.postgres.layout.home)

    def launch(self) -> None:
        super().launch()
        with self._stopped_on_failure():
            self.group.start()

    def poll(self, kept_down: Collection[str] = ()) -> None:
        super().poll(kept_down)
        if "redis" not in kept_down:
            self.group.poll()
        if self._former and clock.monotonic() > self._fence_at_s:
            self.fence()

    def stop(self) -> None:
        self.fence()
        self.group.stop()
        super().stop()

    def new_standby(self, proxy: int | None = None) -> Standby:
        """Returns a standby in the free room; nothing of it runs yet."""
        self.fence()
        return Standby(self._homes[1 - self.room], self.postgres, proxy)

    def synchronize(self, is_synchronous: bool) -> None:
        """Has all commits of the primary wait for its standby, or no longer. It needs no answer of
        a server that may be frozen or dead."""
        settings = self.postgres.layout.data / "postgresql.auto.conf"
        settings.write_text(_WAIT_FOR_STANDBY if is_synchronous else "")
        if self.postgres.process:
            self.postgres.process.send_signal(SIGHUP)

    def strike(self, number: Signals) -> None:
        """Signals all processes of the primary."""
        _strike(self.postgres, number)

    def take_over(self, standby: Standby, fence_after_s: float) -> None:
        """Makes a promoted standby the primary, and ends the former one after a while."""
        self._former, self.postgres = self.postgres, standby
        self._servers[:] = [standby]
        self._fence_at_s = clock.monotonic() + fence_after_s

    def fence(self) -> None:
        """Ends the former primary, as a failover manager does: it never returns as one."""
        if former := self._former:
            self._former = None
            discard(former)


def discard(server: EmbeddedPostgres) -> None:
    """Kills a server, and removes its data."""
    if process := server.process:
        _strike(server, SIGKILL)
        process.wait()
        server.process = None
    shutil.rmtree(server.layout.data, ignore_errors=True)
    for file in server.layout.run.glob(f"{POSTGRES_SOCKET}*"):
        file.unlink()


def _strike(server: EmbeddedPostgres, number: Signals) -> None:
    if not server.process or not server.alive():
        return
    main = server.process.pid
    _send(main, SIGSTOP)  # it starts no other now
    try:
        found = Path(f"/proc/{main}/task/{main}/children").read_text()
    except OSError:
        found = ""
    for pid in (main, *map(int, found.split())):
        _send(pid, number)


def _send(pid: int, number: Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
