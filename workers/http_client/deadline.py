"""Network connections for httpcore on which every operation ends by the deadline of a request."""

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import httpcore

from jobs import clock
from workers.http_client import addresses

Connect = Callable[[str, int, Callable[[], float]], socket.socket]
"""Connects to a host and port; the third argument returns the seconds left for it."""


class Deadline(threading.local):
    """Deadline of the request that the current thread sends.

    It bounds the request as a whole: a peer gains no time by sending a byte now and then.
    """

    _at_s: float  #: on the monotonic clock

    def start(self, timeout_s: float) -> None:
        """Begins a request that may take this long."""
        self._at_s = clock.monotonic() + timeout_s

    def left_s(self, timeout_s: float | None = None) -> float:
        """Seconds left, at most timeout_s. Raises TimeoutError when there are none."""
        left_s = self._at_s - clock.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s if timeout_s is None else min(left_s, timeout_s)


def connect(host: str, port: int, left_s: Callable[[], float]) -> socket.socket:
    """Connects to the first address of the name that answers."""
    found = addresses.find(addresses.resolve, host, port, left_s())
    return addresses.connect_first(found, left_s)


class DeadlineBackend(httpcore.NetworkBackend):
    """Opens connections for httpcore within a deadline."""

    def __init__(self, deadline: Deadline, connect: Connect) -> None:
        self._deadline, self._connect = deadline, connect

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Opens a connection. Raises httpcore.ConnectTimeout or ConnectError."""
        left_s = partial(self._deadline.left_s, self._deadline.left_s(timeout))
        with _connection_errors():
            peer = self._connect(host, port, left_s)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return DeadlineStream(peer, self._deadline)


class DeadlineStream(httpcore.NetworkStream):
    """One connection, used by one thread at a time. Reading raises what sockets raise."""

    def __init__(self, peer: socket.socket, deadline: Deadline) -> None:
        self._peer, self._deadline = peer, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Returns up to max_bytes; none at the end of the stream."""
        self._peer.settimeout(self._deadline.left_s(timeout))
        return self._peer.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Sends all of the buffer."""
        try:
            self._peer.settimeout(self._deadline.left_s(timeout))
            self._peer.sendall(buffer)
        except (BrokenPipeError, ConnectionResetError) as error:
            # The peer may have answered before it closed: httpcore goes on and reads.
            raise httpcore.WriteError(str(error)) from error

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Secures the connection. Raises httpcore.ConnectTimeout or ConnectError."""
        self._peer.settimeout(self._deadline.left_s(timeout))
        with _connection_errors():
            try:
                secured = ssl_context.wrap_socket(self._peer, server_hostname=server_hostname)
            except BaseException:
                self.close()
                raise
        return DeadlineStream(secured, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Tells httpcore whether an idle connection was closed by the peer ("is_readable")."""
        if info != "is_readable":
            return None
        if self._peer.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(self._peer, select.POLLIN)
        return bool(poll.poll(0))

    def interrupt(self) -> None:
        """Ends the connection under a thread that reads from it."""
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection."""
        with suppress(OSError):
            self._peer.close()


@contextmanager
def _connection_errors() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise httpcore.ConnectTimeout(str(error)) from error
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error
