"""Faults of a connection, as its two ends see them."""

import socket
import threading
from collections.abc import Iterator

import pytest

from ops.bench.chaos.network.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.wait import PATIENCE_S, eventually

pytestmark = pytest.mark.heavy


class Server:
    """Keeps what it got on its only connection."""

    def __init__(self, listening: socket.socket) -> None:
        self.received, self._listening = b"", listening
        self.connected = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.connection, _ = self._listening.accept()
        self.connected.set()
        try:
            while data := self.connection.recv(1000):
                self.received += data
        except ConnectionResetError:
            pass


Ends = tuple[FaultyProxy, Server, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A proxy, the server behind it, and a client with an open connection to that."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Server(listening)
        server.thread.start()
        with faulty_proxy(listening.getsockname()[1]) as proxy:
            address = "127.0.0.1", proxy.port
            with socket.create_connection(address, timeout=PATIENCE_S) as client:
                assert server.connected.wait(PATIENCE_S)
                client.sendall(b"a")
                eventually(lambda: server.received == b"a")
                assert proxy.hit == 0
                yield proxy, server, client
        server.thread.join()
        server.connection.close()


def test_a_stall_holds_all_back_until_it_ends(ends: Ends) -> None:
    proxy, server, client = ends
    proxy.inject("stall")
    client.sendall(b"b")
    server.connection.sendall(b"c")
    eventually(lambda: proxy.hit == 2)
    assert server.received == b"a"
    proxy.inject("none")
    assert client.recv(1) == b"c"
    eventually(lambda: server.received == b"ab")


def test_a_stall_of_answers_lets_requests_pass(ends: Ends) -> None:
    proxy, server, client = ends
    proxy.inject("stall_answers")
    client.sendall(b"b")
    server.connection.sendall(b"c")
    eventually(lambda: server.received == b"ab")
    eventually(lambda: proxy.hit == 1)
    proxy.inject("none")
    assert client.recv(1) == b"c"


def test_a_delay_loses_nothing(ends: Ends) -> None:
    proxy, server, client = ends
    proxy.inject("delay")
    client.sendall(b"b")
    eventually(lambda: server.received == b"ab")
    assert proxy.hit == 1


def test_late_requests_hold_no_answer_back(ends: Ends) -> None:
    proxy, server, client = ends
    proxy.inject("delay_requests")
    server.connection.sendall(b"c")
    assert client.recv(1) == b"c"
    assert proxy.hit == 0
    client.sendall(b"b")
    eventually(lambda: server.received == b"ab")
    assert proxy.hit == 1


def test_what_passes_is_renamed(ends: Ends) -> None:
    proxy, server, client = ends
    proxy.renamed = {b"12": b"34"}
    server.connection.sendall(b"0120")
    assert client.recv(4) == b"0340"


def test_a_half_closed_connection_still_takes_what_its_client_sends(ends: Ends) -> None:
    proxy, server, client = ends
    proxy.inject("half_close")
    assert client.recv(1) == b""
    client.sendall(b"b")
    eventually(lambda: server.received == b"ab")


def test_a_cut_passes_half_a_piece_and_resets_both_ends(ends: Ends) -> None:
    proxy, server, client = ends
    proxy.inject("cut")
    client.sendall(b"12345678")
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    server.thread.join(PATIENCE_S)
    assert server.received in (b"a", b"a1234")  # a reset discards what was not read yet
    assert proxy.hit == 2


def read(port: int) -> bytes:
    """Reads from a new connection, which may be reset before it is made."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as other:
        return other.recv(1)


def test_a_reset_strikes_what_is_open_and_what_comes(ends: Ends) -> None:
    proxy, _, client = ends
    proxy.inject("reset")
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionResetError):
        read(proxy.port)
