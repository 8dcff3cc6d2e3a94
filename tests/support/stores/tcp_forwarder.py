"""An address that stays while what is behind it changes: what HAProxy does before Redis."""

import selectors
import socket
import threading
from contextlib import suppress
from pathlib import Path


class Forwarder:
    """Listens on a port of loopback, and passes bytes to a Unix socket and back."""

    def __init__(self, behind: Path) -> None:
        self._behind = behind
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def lead_to(self, behind: Path) -> None:
        """Leads new connections there, and cuts those to what was there before."""
        self._behind = behind
        self.cut()

    def cut(self) -> None:
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        far = socket.socket(socket.AF_UNIX)
        other = {near: far, far: near}
        with near, far, suppress(OSError), selectors.DefaultSelector() as ready:
            far.connect(str(self._behind))
            self._open |= other.keys()
            for end in other:
                ready.register(end, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    end: socket.socket = key.fileobj  # type: ignore[assignment]
                    if not (data := end.recv(65536)):
                        return
                    other[end].sendall(data)
        self._open -= other.keys()
