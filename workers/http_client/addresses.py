"""Addresses of a name, and a connection to the first that answers, both within a time.

The system's resolver knows no time limit. It runs on a thread of its own, which may go on after
nobody waits for it; requests for a name that is being looked up wait for the same thread.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from ipaddress import ip_address
from typing import Any, TypeAlias

Address: TypeAlias = tuple[int, tuple[Any, ...]]
"""Family and socket address; the latter begins with a numeric one."""

Resolver = Callable[[str, int], list[Address]]
"""Maps host and port to addresses."""

_MOST_LOOKUPS = 256  # at a time, those that hang included

_lock = threading.Lock()
_running: dict[tuple[Resolver, str, int], "Future[list[Address]]"] = {}


def resolve(host: str, port: int) -> list[Address]:
    """Resolves a name with the system's resolver."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in addresses]


def find(resolver: Resolver, host: str, port: int, within_s: float) -> list[Address]:
    """Returns the addresses of a name. Raises TimeoutError and other OSErrors."""
    if _is_numeric(host):
        return resolver(host, port)
    key = resolver, host, port
    with _lock:
        lookup = _running.get(key)
        if lookup is None:
            if len(_running) >= _MOST_LOOKUPS:
                raise TimeoutError(f"{_MOST_LOOKUPS} names are being looked up already")
            lookup = _running[key] = Future()
            threading.Thread(target=_look_up, args=(key, lookup), daemon=True).start()
    try:
        return lookup.result(within_s)
    except TimeoutError:
        raise TimeoutError(f"{host} was not resolved in time") from None


def connect_first(addresses: Sequence[Address], left_s: Callable[[], float]) -> socket.socket:
    """Connects to the first address that answers. Raises OSError."""
    failure: OSError = OSError("the name has no address")
    for tried, (family, address) in enumerate(addresses):
        peer = socket.socket(family, socket.SOCK_STREAM)
        try:
            peer.settimeout(left_s() / (len(addresses) - tried))  # leaves time for the others
            peer.connect(address)
            return peer
        except OSError as error:
            peer.close()
            failure = error
    raise failure


def _look_up(key: tuple[Resolver, str, int], lookup: "Future[list[Address]]") -> None:
    resolver, host, port = key
    try:
        lookup.set_result(resolver(host, port))
    except Exception as error:  # for whoever waits
        lookup.set_exception(error)
    finally:
        with _lock:
            del _running[key]


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
