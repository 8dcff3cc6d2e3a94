"""Sockets of an api process that shares its port with other processes of the machine."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

from jobs.settings import SettingsError


def bind(host: str, port: int) -> list[socket.socket]:
    """Returns a socket for each address of the host, bound with SO_REUSEPORT: the kernel spreads
    new connections over the processes that listen there.

    They don't listen yet: a process that still starts gets no connection. Raises SettingsError.
    """
    with ExitStack() as opened:
        sockets = []
        try:
            for family, kind, number, _, address in _addresses(host, port):
                each = opened.enter_context(socket.socket(family, kind, number))
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if family == socket.AF_INET6:
                    each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                each.bind(address)
                sockets.append(each)
        except OSError as error:
            raise SettingsError(
                [
                    f"MILLRACE_PORT: can't listen on {host}:{port} ({error.strerror}); end what "
                    "uses it, or give it MILLRACE_SHARE_PORT=true as well"
                ]
            ) from error
        opened.pop_all()
    return sockets


def accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Accepts the connections that wait at a socket."""
    while True:
        try:
            yield listener.accept()[0]
        except ConnectionAbortedError:
            continue  # its client has left
        except OSError:
            return  # there are no more


def _addresses(host: str, port: int) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(found))
