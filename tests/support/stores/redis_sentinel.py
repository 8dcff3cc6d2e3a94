"""Redis behind a Sentinel, whose master changes when a test says so."""

from contextlib import suppress
from pathlib import Path

import redis

from ops.bench.chaos.servers.sentinel_group import DB as DB
from ops.bench.chaos.servers.sentinel_group import PASSWORD, SERVICE, SentinelGroup
from ops.processes.ports import free_port
from tests.support.wait import eventually


class WatchedRedis(SentinelGroup):
    """The URL names another Sentinel first, which isn't there."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, sentinels=1)
        self._nobody = free_port()

    def __enter__(self) -> "WatchedRedis":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return self.url_of([self._nobody, *self.sentinels])

    def fail_over(self) -> None:
        """Kills the master. Returns when the other one has its place."""
        before = self.master
        self.kill(before)
        eventually(self._begins)
        eventually(lambda: self.master != before)

    def demote(self) -> None:
        """Makes the master a replica of the other one, which takes its place."""
        before, (sentinel,) = self.master, self.sentinels
        after = next(port for port in self.servers if port != before)
        self.ask(sentinel, "SENTINEL", "REMOVE", SERVICE)  # it would kill connections
        self.ask(after, "REPLICAOF", "NO", "ONE")
        self.ask(before, "REPLICAOF", "127.0.0.1", after)
        eventually(lambda: self.ask(before, "INFO")["master_link_status"] == "up")
        self.ask(sentinel, "SENTINEL", "MONITOR", SERVICE, "127.0.0.1", after, 1)
        self.ask(sentinel, "SENTINEL", "SET", SERVICE, "auth-pass", PASSWORD)

    def _begins(self) -> bool:
        """Makes the Sentinel begin a failover. Returns False where it can't yet."""
        with suppress(redis.ResponseError):
            return bool(self.ask(self.sentinels[0], "SENTINEL", "FAILOVER", SERVICE))
        return False
