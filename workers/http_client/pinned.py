"""Connections to addresses that were checked, and to no others, within one deadline.

The name is resolved once, all its addresses are checked, and one of those very addresses is
connected to: a name that answers differently the next time changes nothing. TLS verifies the name.
"""

import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any

import httpcore

from jobs import clock
from jobs.ssrf import AllowList, may_reach

Resolver = Callable[[str, int], list[tuple[int, tuple[Any, ...]]]]
"""host, port → (family, socket address), each with a numeric address at its beginning."""


class Forbidden(OSError):
    """The name leads to an address that no webhook may reach."""


def resolve(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


class Deadline:
    """One for all that a try takes: no peer gets more time by sending a byte now and then."""

    def __init__(self, timeout_s: float) -> None:
        self._at_s = clock.monotonic() + timeout_s

    def left_s(self) -> float:
        """Raises TimeoutError when there is nothing left."""
        left_s = self._at_s - clock.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class PinnedBackend(httpcore.NetworkBackend):
    """Where httpcore gets its connections."""

    def __init__(self, allow: AllowList, deadline: Deadline, resolver: Resolver = resolve) -> None:
        self._allow, self._deadline, self._resolve = allow, deadline, resolver

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        found = self._resolve(host.strip("[]"), port)
        if not all(may_reach(host.strip("[]"), address[0], self._allow) for _, address in found):
            raise Forbidden(f"{host} has an address that is not public")
        return _Stream(self._connect(found), self._deadline)

    def _connect(self, found: list[tuple[int, tuple[Any, ...]]]) -> socket.socket:
        """The first address that answers; a silent one leaves time for the others."""
        failure: OSError = OSError("the name has no address")
        for tried, (family, address) in enumerate(found):
            peer = socket.socket(family, socket.SOCK_STREAM)
            try:
                peer.settimeout(self._deadline.left_s() / (len(found) - tried))
                peer.connect(address)
                return peer
            except OSError as error:
                peer.close()
                failure = error
        raise failure


class _Stream(httpcore.NetworkStream):
    def __init__(self, peer: socket.socket, deadline: Deadline) -> None:
        self._peer, self._deadline = peer, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._peer.settimeout(self._deadline.left_s())
        return self._peer.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            self._peer.settimeout(self._deadline.left_s())
            self._peer.sendall(buffer)
        except (BrokenPipeError, ConnectionResetError) as error:
            # It may have answered before it closed: httpcore goes on and reads.
            raise httpcore.WriteError(str(error)) from error

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        self._peer.settimeout(self._deadline.left_s())
        try:
            secured = ssl_context.wrap_socket(self._peer, server_hostname=server_hostname)
        except OSError:
            self.close()
            raise
        return _Stream(secured, self._deadline)

    def close(self) -> None:
        self._peer.close()
