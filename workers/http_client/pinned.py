"""Connections to checked addresses only.

The name is resolved once, all its addresses are checked, and one of those very addresses is
connected to: a name that resolves differently the next time changes nothing. TLS verifies the name.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from jobs.security.ssrf import AllowList, may_reach
from workers.http_client import addresses
from workers.http_client.addresses import Resolver, resolve


class Forbidden(OSError):
    """Raised where a name leads to an address that no request may reach."""


@dataclass(frozen=True, slots=True)
class PinnedConnect:
    """Connects like `deadline.connect`, to allowed addresses only."""

    allow: AllowList
    resolver: Resolver = resolve
    setting: str = "MILLRACE_WEBHOOK_ALLOW"  #: that of the list

    def __call__(self, host: str, port: int, left_s: Callable[[], float]) -> socket.socket:
        """Connects to the first address that answers. Raises Forbidden and other OSErrors."""
        host = host.strip("[]")
        found = addresses.find(self.resolver, host, port, left_s())
        if not all(may_reach(host, address[0], self.allow) for _, address in found):
            raise Forbidden(
                f"{host} has an address that is not public; {self.setting} can allow it"
            )
        return addresses.connect_first(found, left_s)
