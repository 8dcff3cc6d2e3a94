"""Connections to checked addresses only.

The name is resolved once, all its addresses are checked, and one of those very addresses is
connected to: a name that resolves differently the next time changes nothing. TLS verifies the name.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jobs.ssrf import AllowList, may_reach

Resolver = Callable[[str, int], list[tuple[int, tuple[Any, ...]]]]
"""Maps host and port to (family, socket address) pairs; an address begins with a numeric one."""


class Forbidden(OSError):
    """Raised where a name leads to an address that no webhook may reach."""


def resolve(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    """Resolves a name with the system's resolver."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in addresses]


@dataclass(frozen=True, slots=True)
class PinnedConnect:
    """Connects like `deadline.connect`, to allowed addresses only."""

    allow: AllowList
    resolver: Resolver = resolve

    def __call__(self, host: str, port: int, left_s: Callable[[], float]) -> socket.socket:
        """Connects to the first address that answers. Raises Forbidden and other OSErrors."""
        host = host.strip("[]")
        addresses = self.resolver(host, port)
        if not all(may_reach(host, address[0], self.allow) for _, address in addresses):
            raise Forbidden(f"{host} has an address that is not public")
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
