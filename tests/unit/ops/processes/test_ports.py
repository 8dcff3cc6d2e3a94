"""Ports that tests and benchmarks listen on: free, consecutive, never a connection's."""

import socket
from pathlib import Path

import pytest

from ops.processes.ports import free_port, free_ports

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_are_consecutive_and_can_be_listened_on_and_never_a_connections() -> None:
    ports = free_ports(3)
    assert ports == list(range(ports[0], ports[0] + 3))
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass
    first, last = map(int, _EPHEMERAL.read_text().split())
    assert not any(first <= free_port() <= last for _ in range(100))


def test_a_taken_port_isnt_given(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_ports(2)
    picks = iter([taken, free])

    class Picks:
        def randrange(self, first: int, last: int) -> int:
            return next(picks)

    monkeypatch.setattr("random.SystemRandom", Picks)
    with socket.create_server(("127.0.0.1", taken)):
        assert free_port() == free
