"""Poolers of PostgreSQL's connections, which lend servers to clients by session or by transaction:
a small one, and PgBouncer. The server is the one of a Unix socket, and trusts everybody."""

import os
import selectors
import shutil
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ops.processes.ports import free_port
from tests.support.processes import start_server
from tests.support.stores.tcp_forwarder import Forwarder
from tests.support.wait import eventually

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
_ENCRYPTION = {80877103, 80877104}  # requests for TLS and GSSAPI
_IDLE = b"ZI"  # ReadyForQuery outside a transaction
_KEY = struct.pack("!cIII", b"K", 12, 1, 1)  # no process of the server
_CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
"""


class Pooler:
    """Listens on a port of loopback.

    oldest_first: lends the server that is free longest; else the one that was returned last.
    """

    def __init__(self, server: Path, mode: str, *, oldest_first: bool = False) -> None:
        self._server, self._mode, self._next = server, mode, 0 if oldest_first else -1
        self._greeting = b""
        self._free: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        """Serves until `stop`."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for server in self._free:
            server.close()

    def _serve(self, client: socket.socket) -> None:
        with ExitStack() as closing, suppress(EOFError, OSError):
            ready = closing.enter_context(selectors.DefaultSelector())
            closing.enter_context(client)
            start = _startup(client)
            if not self._greeting:
                self._free.append(self._open(start))
            client.sendall(self._greeting)
            ready.register(client, selectors.EVENT_READ)
            server = None
            while True:
                for key, _ in ready.select():
                    if key.fileobj is client:
                        message = _read(client)
                        if message[:1] == b"X":
                            return
                        if server is None:
                            server = self._lend(start)
                            ready.register(server, selectors.EVENT_READ)
                            if self._mode == "session":  # and closed: what was set ends with it
                                closing.enter_context(server)
                        server.sendall(message)
                    elif server is not None:
                        message = _read(server)
                        if self._mode != "session" and message[:1] + message[5:] == _IDLE:
                            ready.unregister(server)
                            with self._lock:
                                self._free.append(server)
                            server = None
                        client.sendall(message)

    def _lend(self, start: bytes) -> socket.socket:
        with self._lock:
            return self._free.pop(self._next) if self._free else self._open(start)

    def _open(self, start: bytes) -> socket.socket:
        """Logs in to the server."""
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self._server))
        server.sendall(start)
        greeting = message = b""
        while message[:1] != b"Z":
            message = _read(server)
            greeting += _KEY if message[:1] == b"K" else message
        self._greeting = greeting
        return server


def _startup(client: socket.socket) -> bytes:
    while True:
        head = _receive(client, 8)
        size, code = struct.unpack("!II", head)
        if code not in _ENCRYPTION:
            return head + _receive(client, size - 8)
        client.sendall(b"N")


def _read(peer: socket.socket) -> bytes:
    """Reads a message."""
    head = _receive(peer, 5)
    return head + _receive(peer, struct.unpack("!I", head[1:])[0] - 4)


def _receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := peer.recv(size - len(data))):
            raise EOFError
        data += more
    return data


@contextmanager
def pooler(server: Path, mode: str, *, oldest_first: bool = False) -> Iterator[int]:
    """Starts the small one. Yields its port."""
    made = Pooler(server, mode, oldest_first=oldest_first)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    try:
        yield made.port
    finally:
        made.stop()
        thread.join()


@contextmanager
def pgbouncer(server: Path, user: str, mode: str, folder: Path) -> Iterator[int]:
    """Starts PgBouncer. Yields its port."""
    port, configuration = free_port(), folder / "pgbouncer.ini"
    # As root it becomes another user, who can't reach the socket.
    forwarder = Forwarder(server)
    address = {"port": forwarder.port, "user": user, "listen_port": port}
    configuration.write_text(_CONFIGURATION.format(**address, mode=mode))
    as_user = ["-u", "nobody"] if os.geteuid() == 0 else []
    process = start_server([str(PGBOUNCER), *as_user, str(configuration)], folder)

    def answers() -> bool:
        assert process.poll() is None, (folder / "output").read_text()
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    try:
        eventually(answers)
        yield port
    finally:
        process.kill()
        process.wait()
        forwarder.close()
