"""Free ports of loopback, that no outgoing connection takes before they are listened on."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 10_000
_USUAL_EPHEMERAL = 32_768


def free_port() -> int:
    """Free port of loopback."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Consecutive free ports of loopback, below those that the kernel gives to connections.

    They are picked at random: two processes that ask at one time hardly get the same. A port of
    the ephemeral range, as `bind(0)` gives one, may be an outgoing connection's a moment later.
    """
    while True:
        first = random.SystemRandom().randrange(_FIRST, _last() - count)
        ports = list(range(first, first + count))
        if _are_free(ports):
            return ports


def _are_free(ports: list[int]) -> bool:
    with ExitStack() as stack:
        for port in ports:
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def _last() -> int:
    """First port of the ephemeral range; where it leaves too little below, the usual one."""
    try:
        found = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_EPHEMERAL
    return found if found >= 2 * _FIRST else _USUAL_EPHEMERAL
