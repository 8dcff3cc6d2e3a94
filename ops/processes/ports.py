"""Free ports of loopback, outside the range of outgoing connections."""

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


def free_ports(count: int, *, pair_offset: int = 0) -> list[int]:
    """Consecutive free ports of loopback, below those that the kernel gives to connections.

    pair_offset: distance to a second port of each, which is free too; 0: there is none.
    They are random, so that two processes rarely get the same. A port of the ephemeral range, as
    from `bind(0)`, may be taken by an outgoing connection a moment later.
    """
    while True:
        above = max(2 * _FIRST, _first_ephemeral() - pair_offset) - count
        first = random.SystemRandom().randrange(_FIRST, above)
        ports = list(range(first, first + count))
        pairs = [port + pair_offset for port in ports] if pair_offset else []
        if _are_free([*ports, *pairs]):
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


def _first_ephemeral() -> int:
    """First port of the ephemeral range; the usual one where that leaves too few below."""
    try:
        first = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_EPHEMERAL
    return first if first >= 2 * _FIRST else _USUAL_EPHEMERAL
